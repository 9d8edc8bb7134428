"""Any client API over any upstream API: each pair, streamed or not, with each kind of reply."""
