"""Texts that would run or load something if a page took them for markup."""

ATTACKS = (
    "<script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=1>",
    "<svg/onload=window.hacked=1>",
    "<iframe srcdoc='<script>parent.hacked=1</script>'></iframe>",
    '"><b onmouseover=window.hacked=1>bold</b>',
    "[click](javascript:window.hacked=1)",
    "javascript:window.hacked=1",
    "![x](http://evil.test/pixel.png)",
    "<a href='javascript:window.hacked=1'>link</a>",
    "{{constructor.constructor('window.hacked=1')()}}",
    "<style>@import 'http://evil.test/x.css';</style>",
    "<math><mtext></mtext><mglyph><svg><mtext><style><img src=x onerror=window.hacked=1></style></svg></mglyph></math>",
    "</title></text></textarea><script>window.hacked=1</script>",
    '<data 0123 from "x"><script>window.hacked=1</script></data 0123>',
    "\u202edesrever\u202c \ufffd <\u200bscript>",
)
EVERYTHING = "\n\n".join(ATTACKS)
