"""Sphinx configuration. The built pages are self-contained: they load nothing from elsewhere."""

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "safeswap"
author = "The safeswap developers"
version = release = installed_version("safeswap")
copyright = author  # noqa: A001  (the name is Sphinx's)

extensions = ["myst_parser", "sphinx.ext.autodoc", "mathml", "code_tables", "command_line", "offline"]
exclude_patterns = ["_build", "_ext"]

myst_enable_extensions = ["deflist", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
autodoc_default_options = {"exclude-members": "model_config"}
add_module_names = False
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = f"safeswap {release}"
html_math_renderer = "mathml"
html_show_sphinx = False
html_show_sourcelink = False
html_copy_source = False
