"""The steps. A step that has been released is never changed: what comes later is another step."""
