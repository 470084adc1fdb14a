"""``python -m bench report``: what was measured, as a page with tables and pictures."""
