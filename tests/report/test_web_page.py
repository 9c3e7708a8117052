from __future__ import annotations

import base64
import hashlib
import json
import re

import pytest

from fedrelay.report.report_content import document
from fedrelay.report.web_page import SCRIPTS, as_json, script, web_page

NASTY = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<!--<script>",
    "{{script}}",
    "a\u2028b&",
]


@pytest.fixture(scope="module")
def doc(comparison_folder):
    return document([comparison_folder])


def embedded(page):
    return json.loads(re.search(r'<script type="application/json" id="document">(.*?)</script>', page, re.S)[1])


def test_the_document_comes_back_unchanged(doc):
    assert embedded(web_page(doc)) == json.loads(json.dumps(doc))


@pytest.mark.parametrize("label", NASTY)
def test_no_label_can_leave_its_place(doc, label):
    bad = {**doc, "title": label, "methods": [{**doc["methods"][0], "name": label}]}
    page = web_page(bad)
    assert page.count("<script") == page.count("</script>") == web_page(doc).count("<script") == 2
    assert "<img" not in page
    assert "<!--" not in page
    assert embedded(page)["methods"][0]["name"] == label


def test_nothing_is_loaded_from_anywhere(doc):
    page = web_page(doc)
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", page)
    assert set(re.findall(r"https?://[^\s\"'`)]+", page)) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert "connect-src 'none'" in page
    assert "connect-src 'self'" in web_page(doc, live=True)


def test_the_policy_names_the_one_script_that_may_run(doc):
    page = web_page(doc)
    inline = re.findall(r"<script>(.*?)</script>", page, re.S)
    assert inline == [script()]
    digest = base64.b64encode(hashlib.sha256(script().encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page


def test_scripts_never_write_markup():
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "</script"):
        assert word not in script(), word
    assert SCRIPTS[-1] == "page"


def test_no_number_is_written_that_json_lacks():
    with pytest.raises(ValueError, match="Out of range"):
        as_json({"loss": float("nan")})
