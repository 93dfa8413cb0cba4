"""The reports of a study: what they must say, and what the public one must not."""

import html
import re
import stat
from dataclasses import replace

import pytest
from tests.studies import HOSTILE, cps_study, hostile_study

import safeswap as ss
from safeswap import registry
from safeswap.charts.map import candidate_tables, short_number
from safeswap.errors import OutputError, SpecError
from safeswap.measures.base import tells_the_rate
from safeswap.projects.toml import read_study_spec
from safeswap.reports.study import public_points, round_off, study_report, write_study_report

# Numbers that occur nowhere by accident.
RATES = (0.013747, 0.029137, 0.073171)


def studied(replicates=7):
    study = cps_study(
        attributes=("Race", "Sex", "Age"),
        rates=RATES,
        replicates=replicates,
        distortion=("share_changed", "hellinger", "total_variation", "entropy_change"),
    )
    return study, study.choose("cap_risk:0.0142", distortion="hellinger")


@pytest.fixture(scope="module")
def assessed():
    """An assessment of the chosen release, whose sentences tell more than the public may know."""
    _, choice = studied()
    masked = ss.mask(ss.datasets.cps8d(), choice.spec, insecure_seed=11, replicate=choice.replicate)
    return ss.assess(masked)


def kept_for_users(choice):
    data = ss.datasets.cps8d()
    promises = registry.method("swap").invariants(data, choice.spec)
    return [p.sentence for p in (promise.for_users_of(data.attributes) for promise in promises) if p is not None]


def words(page: bytes) -> str:
    """What a reader sees, without style sheets and scripts."""
    text = re.sub(r"<(style|script)\b.*?</\1>", " ", page.decode(), flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())


def test_the_internal_report_tells_everything_that_speaks_for_the_choice(assessed):
    study, choice = studied()
    page = words(
        study_report(study, choice, after=assessed, kept=kept_for_users(choice), limits=["A limit of our own."])
    )
    assert choice.sentence in page
    assert "48,842 records" in page
    assert all(f"{rate:g}" in page for rate in RATES)
    assert all(score.sentence in page for score in assessed)
    assert all(sentence in page for sentence in kept_for_users(choice))
    assert study.facts["key_id"] in page
    assert "A limit of our own." in page
    assert "Confidential" in page
    for rival in choice.rivals.to_pylist():
        assert rival["label"] in page
    for values in candidate_tables(study, choice.candidate).values():
        assert all(short_number(value) in page for value in values)


def test_the_question_in_the_internal_report_can_be_asked_again(tmp_path):
    study, choice = studied()
    page = study_report(study, choice).decode()
    text = html.unescape(re.search(r"as a TOML file.*?<pre>(.*?)</pre>", page, flags=re.DOTALL)[1])
    (tmp_path / "study.toml").write_text(text, encoding="utf-8")
    assert read_study_spec(tmp_path / "study.toml") == study.spec


def test_with_consent_the_public_report_has_the_map_the_choice_and_its_tables(assessed):
    study, choice = studied()
    parts = {"after": assessed, "kept": kept_for_users(choice), "publish_figures": True}
    page = study_report(study, choice, version="public", **parts)
    text = words(page)
    assert "48,842 records" in text
    assert "<svg" in page.decode()
    assert choice.objective in text
    assert all(name in text for name in choice.spec.swap)
    assert all(sentence in text for sentence in kept_for_users(choice))
    assert "can be inferred from the map and from the figures below" in text
    for values in candidate_tables(study, choice.candidate).values():
        assert all(short_number(round_off(value)) in text for value in values)


def test_without_consent_one_band_of_distortion_is_all_that_depends_on_the_rate(assessed):
    study, choice = studied()
    page = study_report(study, choice, version="public", after=assessed, kept=kept_for_users(choice)).decode()
    text = words(page.encode())
    assert "<svg" not in page
    assert "Hellinger distance: 0.01 to 0.1." in text
    assert "Rule of the choice: least distortion below a limit on risk." in text
    assert "0.0142" not in text
    for score in assessed:
        assert f"{round_off(score.value):g}" not in text or f"{round_off(score.value):g}" in ("0", "0.01")
    known = [registry.measure(score.measure).title for score in assessed]
    assert "Exact figures of these measures are not published" in text
    assert all(title in text for title in known)


def test_a_figure_that_anybody_can_compute_from_the_release_is_published():
    study = cps_study(attributes=("Race",), rates=(0.029137,), risk=("n_rule", "k_anonymity"))
    choice = study.choose("cap_risk:1")
    text = words(study_report(study, choice, version="public"))
    value = study.table.column("k_anonymity")[choice.candidate].as_py()
    assert f"share of records below k risk {round_off(value):g}" in text
    assert "n-rule risk" not in text


class Silent:
    """A measure of a plug-in that declares none of its properties."""

    name = title = "silent"
    text = "silent"
    axis = registry.measure("hellinger").axis
    parameters: dict[str, object] = {}  # noqa: RUF012


def test_a_measure_that_declares_nothing_counts_as_telling_the_rate():
    assert tells_the_rate(Silent())
    telling = {name for name, measure in registry.measures().items() if tells_the_rate(measure)}
    # These look at the released file alone: everybody who has it can compute them.
    silent = {"k_anonymity", "l_diversity", "t_closeness", "individual_risk", "population_risk", "suda2"}
    assert set(registry.measure_names()) - telling == silent


def test_the_public_report_holds_no_rate_no_pairs_no_draw_and_no_key(assessed):
    study, choice = studied()
    page = study_report(study, choice, version="public", after=assessed, kept=kept_for_users(choice)).decode()
    rows = study.table.to_pylist()
    for rate in RATES:
        assert f"{rate:g}" not in page
        assert f"{100 * rate:g}" not in page
        for rough in (f"{rate:.4f}", f"{rate:.3g}", f"{100 * rate:.2f}%", f"{100 * rate:.1f}%"):
            assert rough not in words(page.encode())
    for pairs in {row["pairs"] for row in rows}:
        for number in (pairs, 2 * pairs, study.facts["records"] - 2 * pairs):
            assert not re.search(rf"(?<![\d.#-])({number}|{number:,})(?![\d.])", page)
    for word in (
        study.facts["key_id"],
        "replicate",
        "insecure_seed",
        "candidate",
        "<script",
    ):
        assert word not in page
    for row in rows:
        assert repr(row["hellinger"]) not in page
        assert f"{row['n_rule']:.4g}" not in page or f"{row['n_rule']:.4g}" == f"{row['n_rule']:.3g}"


def test_the_number_of_draws_leaves_no_trace_in_the_public_report():
    study, choice = studied()
    page = words(study_report(study, choice, version="public"))
    assert not re.search(r"\b(7|seven)\b draws", page)
    assert "draws of each" not in page


def test_public_points_are_rounded_and_in_the_order_of_their_figures():
    study, choice = studied()
    points = public_points(study, choice, distortion="hellinger", tolerance=3)
    assert points.rates is None
    assert points.cloud is None
    assert list(points.distortion) == sorted(points.distortion)
    assert all(value == round_off(value) for value in (*points.risk, *points.distortion))
    assert points.labels[points.chosen] == study.table.column("label")[choice.candidate].as_py()


def test_a_share_that_tells_a_small_count_is_not_stated():
    study, choice = studied()
    records = study.facts["records"]
    tolerance = records // 50  # more than the records at risk
    text = words(study_report(study, choice, version="public", tolerance=tolerance, publish_figures=True))
    assert f"below {round_off(tolerance / records):g}" in text
    points = public_points(study, choice, distortion="hellinger", tolerance=tolerance)
    assert min(points.risk) >= round_off(tolerance / records)


def test_few_records_are_not_counted_in_public():
    study, choice = studied()
    text = words(study_report(study, choice, version="public", tolerance=50_000))
    assert "48,842" not in text
    assert "Fewer than 50000 records" in text


@pytest.mark.parametrize("sentence", ["{pairs} pairs were made.", "{pairs:,} pairs", "Rate: {rate:g}.", "Key {key}"])
def test_a_sentence_that_tells_too_much_is_refused(sentence):
    study, choice = studied()
    pairs = study.table.column("pairs")[choice.candidate].as_py()
    said = sentence.format(pairs=pairs, rate=choice.spec.rate, key=study.facts["key_id"])
    with pytest.raises(SpecError) as caught:
        study_report(study, choice, version="public", kept=[said])
    assert caught.value.code == "telltale-sentence"
    assert said not in caught.value.message


def test_a_study_that_measures_the_rate_only_shows_no_public_map():
    study = cps_study(attributes=("Race",), rates=(0.013747,), distortion=("share_changed",))
    page = study_report(study, study.choose("cap_risk:1"), version="public").decode()
    assert "<svg" not in page
    assert "0.0137" not in page


@pytest.mark.parametrize("version", ["internal", "public"])
def test_names_are_text_and_not_markup(version):
    study = hostile_study()
    page = study_report(study, study.choose(), version=version, kept=HOSTILE, title=HOSTILE[1]).decode()
    assert "<img src=x" not in page
    assert "<script>window" not in page
    assert "window.harmed" in words(page.encode())


@pytest.mark.parametrize("version", ["internal", "public"])
def test_an_insecure_seed_is_stamped_on_both_versions(version):
    study, choice = studied()
    assert "Not for release" in words(study_report(study, choice, version=version))


@pytest.mark.parametrize("version", ["internal", "public"])
def test_reports_are_the_same_bytes_every_time(version):
    study, choice = studied()
    assert study_report(study, choice, version=version) == study_report(study, choice, version=version)


def test_the_internal_report_is_its_owners_alone_and_nothing_is_overwritten(tmp_path):
    study, choice = studied()
    path = write_study_report(study, choice, tmp_path / "report.html")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(OutputError):
        write_study_report(study, choice, path)
    write_study_report(study, choice, path, version="public", force=True)
    assert path.read_bytes() == study_report(study, choice, version="public")
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.parametrize("version", ["internal", "public"])
def test_a_search_is_not_told_as_if_everything_had_been_tried(version):
    study, choice = studied()
    searched = replace(study, facts={**study.facts, "search": {"method": "NSGA-II", "possible": 8_484}})
    assert "every choice" in words(study_report(study, choice, version=version))
    text = words(study_report(searched, choice, version=version))
    assert "every choice" not in text
    assert ("8,484" in text) == (version == "internal")


def test_another_version_is_refused():
    study, choice = studied()
    with pytest.raises(SpecError, match="no version"):
        study_report(study, choice, version="secret")
