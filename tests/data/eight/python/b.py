"""Pipeline (b) of the eight, built in Python; `yaml/b.yaml` says the same."""

from __future__ import annotations

from b_images import read_image, write_xlsx

from suimon import File, Pipeline

p = Pipeline("scans", concurrency=1)
p.on(File("scans/*/READY", settle="2s"))
images = p.read("images", p.input.folder, format="files", match="*.png")
seen = p.spawn("seen", read_image, images, key="name", concurrency=16)
all_ = p.merge("merged", seen, tolerate=["FAILED", "TIMED_OUT"], max_failures=10)
book = p.run("book", write_xlsx, all_, sheet="results")
