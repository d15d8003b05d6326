"""Pipeline (c) of the eight, built in Python; `yaml/c.yaml` says the same."""

from __future__ import annotations

from c_refund import check_refund
from far import shop

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
pay = {"order": r.order, "amount": r.amount}
paid = p.http("paid", shop, path="/refunds", json=pay, when=ok.approved)
why = {"order": r.order, "why": ok.comment}
p.http("refused", shop, path="/refusals", json=why, unless=ok.approved)
p.http("alarm", "shop", path="/alarms", json={"run": p.meta.id}, after=[paid], run_if="failed")
p.returns(paid)
