"""Which element comes when: arithmetic from positions to positions."""
