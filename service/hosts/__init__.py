"""Context paging at home in agent hosts: one module a host, over one core."""
