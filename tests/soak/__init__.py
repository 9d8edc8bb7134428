"""Load for a while, with clients that come and go and upstreams that fail: nothing is lost or doubled."""
