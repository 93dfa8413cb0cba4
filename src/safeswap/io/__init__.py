"""Reading and writing: files, frames, descriptions, projects, keys."""
