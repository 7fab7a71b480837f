"""Every way in: one blueprint per source or resource."""
