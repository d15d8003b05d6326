"""What the eight call outside. A test puts the address of its own server here."""

from __future__ import annotations

from suimon import Destination

crm = Destination("crm", rate="20/s", concurrency=8, base_url="http://far.example")
shop = Destination("shop", base_url="http://far.example", auth="secret:shop_token", concurrency=2)
video = Destination("video", base_url="http://far.example")
