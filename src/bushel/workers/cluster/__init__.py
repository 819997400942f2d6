"""Workers on a cluster: `ray_prefetch`."""
