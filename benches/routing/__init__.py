"""Which server each policy chooses, and what comes of it: simulated servers, our policies and those of
others."""
