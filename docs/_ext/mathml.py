"""Formulas as MathML, which browsers render natively: no script, fonts or LaTeX are needed.

The converter is that of docutils. It reads a digit after a command as the start of a longer number, so write
``\\frac{1}{2}``, never ``\\frac12``. A formula that it cannot read is a warning, hence an error in ``make docs``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)


def to_mathml(node: nodes.Element, *, as_block: bool) -> str:
    """Return the formula of a node as a MathML element."""
    try:
        return tex2mathml(node.astext(), as_block=as_block)
    except MathError as error:
        logger.warning("cannot convert the formula to MathML: %s", error, location=node)
        return f"<code>{nodes.fully_normalize_name(node.astext())}</code>"


def visit_inline(self: HTML5Translator, node: nodes.math) -> None:
    """Write an inline formula."""
    self.body.append(to_mathml(node, as_block=False))
    raise nodes.SkipNode


def visit_block(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write a displayed formula."""
    self.body.append(self.starttag(node, "div", CLASS="math"))
    self.body.append(to_mathml(node, as_block=True))
    self.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", inline_renderers=(visit_inline, None), block_renderers=(visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
