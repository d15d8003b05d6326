"""Pipeline (c) of the eight, built in Python; `yaml/c.yaml` says the same."""

from __future__ import annotations

from c_refund import alarm, check_refund, pay, refuse

from suimon import Pipeline, Webhook

p = Pipeline("refund", concurrency="unlimited")
p.on(
    Webhook("refunds", preset="generic", secret="env:REFUND_HOOK_SECRET", key_header="X-Request-Id")
)
r = p.run("checked", check_refund, p.input.body)
ok = p.approve(
    "manager",
    show=r,
    required=r.needs_manager,
    title="Refund",
    role="manager",
    expires="3d",
    on_reject="continue",
)
paid = p.run("paid", pay, r.order, r.amount, when=ok.approved)
p.run("refused", refuse, r.order, ok.comment, unless=ok.approved)
p.run("alarm", alarm, p.meta.id, after=[paid], run_if="failed")
p.returns(paid)
