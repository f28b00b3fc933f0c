"""What a person reads: the messages that a real Alertmanager sends to mail, Slack, PagerDuty and webhooks."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from alertmanager.recorders import HttpRecorder, Mail, SmtpRecorder, http_recorder, smtp_recorder
from alertmanager.server import PATIENCE_S, Alertmanager, hurried, labels, load, running
from argus_simulator.stack.waiting import wait_for

pytestmark = pytest.mark.skipif(
    not (shutil.which("alertmanager") or shutil.which("prometheus-alertmanager")),
    reason="Alertmanager is not on PATH (tools/setup.sh)",
)
DASHBOARD = "https://grafana.example/d/argus-job/argus-job?var-training_job=llm&var-rank=3"
RUNBOOK = "https://runbooks.example/ArgusStragglerRank.md"
TIMELINE = "https://argus.example/traces/llm/2026-11-21/3/w.perfetto-trace?ui=1"
SUMMARY = "Rank 3 of llm on gpu-17 computes slowly: 1.49 times its group in forward, since 12:01 UTC."
ANNOTATIONS = {
    "summary": SUMMARY,
    "description": "Its group <dp:0> & the others wait. The job loses 12 %: 7.7 GPUs stand idle.",
    "runbook_url": RUNBOOK,
    "dashboard_url": DASHBOARD,
    "trace_key": "llm/2026-11-21/3/w.perfetto-trace",
    "trace_url": TIMELINE,
}
PLACE = {"rank": "3", "node": "gpu-17", "gpu_uuid": "GPU-1a2b3c"}
FACTS = (
    "llm",
    "rank 3",
    "gpu-17",
    "GPU-1a2b3c",
    "forward",
    "7.7 GPUs",
    RUNBOOK,
    DASHBOARD,
    TIMELINE,
)
"""What every page must say: job, rank, host, GPU, phase, cost, and where to look."""


@dataclass(frozen=True)
class Office:
    """The complete configuration, delivering to recorders."""

    alertmanager: Alertmanager
    http: HttpRecorder
    smtp: SmtpRecorder

    def mail(self, number: int, to: str) -> Mail:
        """The `number`-th mail to somebody."""

        def found() -> list[Mail]:
            return [mail for mail in self.smtp.mails() if mail.recipients == (to,)][number:]

        return wait_for(found, PATIENCE_S, f"mail {number} to {to}")[0]

    def request(self, number: int, path: str) -> dict[str, Any]:
        found = wait_for(
            lambda: self.http.deliveries(path)[number:], PATIENCE_S, f"request {number} on {path}"
        )
        return found[0].body


def with_secrets(config: dict[str, Any], folder: Path, secrets: dict[str, str]) -> dict[str, Any]:
    """The configuration with its secrets in `folder`."""
    for name, secret in secrets.items():
        (folder / name).write_text(secret, encoding="utf-8")
    return json.loads(json.dumps(config).replace("/etc/alertmanager/secrets", str(folder)))  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    """alertmanager.yaml as it is, but for waits, hours, and where its receivers are."""
    folder = tmp_path_factory.mktemp("office")
    with http_recorder() as http, smtp_recorder() as smtp:
        secrets = {"smtp-password": "geheim"}
        for team in ("operations", "infrastructure", "algorithm", "info"):
            secrets |= {f"slack-{team}": f"{http.url}/slack/{team}", f"pagerduty-{team}": f"key-of-{team}"}
        config = with_secrets(hurried(load("alertmanager.yaml")), folder, secrets)
        config["global"] |= {
            "smtp_smarthost": f"127.0.0.1:{smtp.port}",
            "smtp_require_tls": False,
            "pagerduty_url": f"{http.url}/pagerduty",
        }
        with running(config, folder / "run") as alertmanager:
            yield Office(alertmanager, http, smtp)


def test_a_page_on_slack_and_pagerduty(office: Office) -> None:
    """Fired and ended: both say who, where, why, what it costs, and link to what to look at."""
    slow = labels("ArgusStragglerRank", "page", "llm", cause="gpu-compute", level="L2", **PLACE)
    office.alertmanager.fire(slow, annotations=ANNOTATIONS)

    pager = office.request(0, "/pagerduty")
    assert pager["routing_key"] == "key-of-operations"
    assert pager["event_action"] == "trigger"
    assert pager["payload"]["summary"] == f"PAGE: {SUMMARY}"
    assert pager["payload"]["severity"] == "critical"
    assert pager["payload"]["component"] == "rank 3"
    assert pager["payload"]["class"] == "gpu-compute"
    assert pager["payload"]["group"] == "llm"
    assert {link["href"] for link in pager["links"]} == {DASHBOARD, RUNBOOK, TIMELINE}
    for fact in FACTS:
        assert fact in pager["payload"]["custom_details"]["firing"]

    [chat] = office.request(0, "/slack/operations")["attachments"]
    assert chat["title"] == f"PAGE: {SUMMARY}"
    assert chat["title_link"] == DASHBOARD
    assert chat["color"] == "danger"
    assert "&lt;dp:0&gt; &amp; the others" in chat["text"], "what Slack would take for markup"
    for fact in FACTS[1:-3]:
        assert fact in chat["title"] + chat["text"]
    for link, name in ((RUNBOOK, "Runbook"), (DASHBOARD, "Dashboard"), (TIMELINE, "Timeline")):
        assert f"<{link}|{name}>" in chat["text"]
    assert re.search(
        r"<http://alertmanager\.example:\d+/#/silences/new\?filter=[^|> ]+\|Silence>", chat["text"]
    )

    office.alertmanager.resolve(slow, annotations=ANNOTATIONS)
    over = office.request(1, "/pagerduty")
    assert (over["event_action"], over["dedup_key"]) == ("resolve", pager["dedup_key"])
    [chat] = office.request(1, "/slack/operations")["attachments"]
    assert chat["title"] == f"RESOLVED: {SUMMARY}"
    assert chat["color"] == "good"
    assert chat["text"].startswith("Over since ")
    assert "Silence" not in chat["text"], "nothing left to silence"


CARD = """[page] llm: rank 5 on gpu-17 computes slowly, 1.49x in <forward>; 12% of the time lost
who      on gpu-17, GPU-1a2b3c
do       check clocks and Xid; drain gpu-17 at the next checkpoint and test it (dcgmi diag -r 3)"""


def test_a_card_is_printed_as_it_is(office: Office) -> None:
    """Line for line; what it says already is not said twice, and no name is markup."""
    place = PLACE | {"rank": "5"}
    of = labels("ArgusStragglerRank", "page", "carded", cause="gpu-compute", level="L2", **place)
    office.alertmanager.fire(of, annotations=ANNOTATIONS | {"card": CARD})

    def sent(path: str) -> list[dict[str, Any]]:
        return [one.body for one in office.http.deliveries(path) if "rank 5" in json.dumps(one.body)]

    (pager, *_) = wait_for(lambda: sent("/pagerduty"), PATIENCE_S, "a page with a card")
    assert (
        f"{CARD}\n{ANNOTATIONS['description']}\nDashboard: " in pager["payload"]["custom_details"]["firing"]
    )
    (chat, *_) = wait_for(lambda: sent("/slack/operations"), PATIENCE_S, "a message with a card")
    text = chat["attachments"][0]["text"]
    assert f"```{CARD.replace('<', '&lt;').replace('>', '&gt;')}```" in text and "*Since*" not in text


def test_a_ticket_by_mail(office: Office) -> None:
    """To the team's address with a password from a file; as text and as HTML with links."""
    office.alertmanager.fire(
        labels("ArgusHostStall", "ticket", "llm", "algorithm", cause="data-input", **PLACE),
        annotations=ANNOTATIONS,
    )
    mail = office.mail(0, "argus-algorithm@example.com")
    assert mail.login == ("argus", "geheim")
    assert mail.message["Subject"] == f"TICKET: {SUMMARY}"
    assert mail.message["From"] == "argus@example.com"
    text, html = mail.part("plain"), mail.part("html")
    for fact in FACTS:
        assert fact in text
        assert fact.replace("&", "&amp;") in html
    assert "&lt;dp:0&gt; &amp; the others" in html
    assert 'name="viewport"' in html
    assert not re.search(r"<no value>|%!|ZgotmplZ|{{", text + html), "what a template leaves where it fails"


def test_what_is_not_known_leaves_no_hole(office: Office) -> None:
    """An alert of a whole job: no rank, host, GPU or address, and no empty line for them."""
    office.alertmanager.fire(
        labels(
            "ArgusRecordsDropped", "ticket", "quiet", "infrastructure", channel="kernels", reason="socket"
        ),
        annotations={
            "summary": "Channel kernels of quiet loses records (socket).",
            "description": "3 records a second are lost.",
            "runbook_url": RUNBOOK,
            "dashboard_url": "/d/argus-job/argus-job",
        },
    )
    mail = office.mail(0, "argus-infrastructure@example.com")
    text, html = mail.part("plain"), mail.part("html")
    assert "3 records a second are lost.\nSince: " in text
    assert "Where" not in text + html
    assert not re.search(r"host|GPU|Timeline|Traces", text)
    assert "/d/argus-job/argus-job" not in html, "a link that leads nowhere from a mail"


def test_links_lead_to_what_the_title_names(office: Office) -> None:
    """Not to an alert of the group that is over and sorts first."""

    def links(rank: str) -> dict[str, str]:
        wanted = ("dashboard_url", "runbook_url", "trace_url")
        return {name: f"https://{name}.example/{rank}" for name in wanted} | {"summary": f"Rank {rank}."}

    first, second = (labels("ArgusStragglerRank", "page", "linked", rank=rank) for rank in "12")
    office.alertmanager.fire(first, annotations=links("1"))
    paged(office, "Rank 1.")
    office.alertmanager.resolve(first, annotations=links("1"))
    office.alertmanager.fire(second, annotations=links("2"))
    paged(office, "Rank 2.")
    (pager,) = [
        one.body
        for one in office.http.deliveries("/pagerduty")
        if one.body["payload"]["summary"] == "PAGE: Rank 2."
    ]
    assert "Rank 1." in pager["payload"]["custom_details"]["resolved"], "what sorts first is told with it"
    assert {link["href"] for link in pager["links"]} == {
        link for name, link in links("2").items() if name != "summary"
    }


def test_a_group_of_several_causes_has_the_class_that_its_title_names(office: Office) -> None:
    """And a name with signs of Slack's markup is no markup in the title."""
    for rank, cause in (("1", "gpu-compute"), ("2", "host-cpu")):
        slow = labels("ArgusStragglerRank", "page", "mixed", cause=cause, rank=rank)
        office.alertmanager.fire(slow, annotations={"summary": f"Rank {rank} of <mixed> & co: {cause}."})
    title = "PAGE: Rank 1 of <mixed> & co: gpu-compute. (+1)"

    def with_both() -> list[Any]:
        pages = (one.body["payload"] for one in office.http.deliveries("/pagerduty"))
        return [page for page in pages if page["summary"] == title]

    assert wait_for(with_both, PATIENCE_S, "the page of both")[0]["class"] == "gpu-compute"

    def in_chat() -> bool:
        chats = (one.body["attachments"][0] for one in office.http.deliveries("/slack/operations"))
        return any(title == unescape(one["title"]) != one["title"] for one in chats)

    wait_for(in_chat, PATIENCE_S, "the same in chat")


def test_what_is_about_no_job_is_about_argus(office: Office) -> None:
    """The worker, or the rules."""
    behind = {"alertname": "ArgusRulesBehind", "severity": "ticket", "team": "infrastructure"}
    office.alertmanager.fire(behind, annotations={"summary": "The rules are evaluated too seldom."})
    mail = wait_for(
        lambda: [m for m in office.smtp.mails() if "too seldom" in m.message["Subject"]], PATIENCE_S, "it"
    )[0]
    assert mail.part("plain").startswith("ARGUS itself\n")
    assert silenced(mail.part("plain")) == '{alertname="ArgusRulesBehind"}'


def silenced(text: str) -> str:
    """What the link of a message would silence, as Alertmanager's page decodes it: a plus is a plus."""
    return unquote(re.search(r"/#/silences/new\?filter=([^\s|>\"]+)", text)[1])  # type: ignore[index]


def paged(office: Office, words: str) -> str:
    """What fires, by the first page that has these words."""
    return wait_for(
        lambda: [
            firing
            for one in office.http.deliveries("/pagerduty")
            if words in (firing := one.body["payload"]["custom_details"]["firing"])
        ],
        PATIENCE_S,
        f"the page: {words}",
    )[0]


def test_a_silence_takes_no_alert_of_others(office: Office) -> None:
    """Several alerts of ARGUS itself have neither a job nor a name in common."""
    shared = {"severity": "page", "team": "infrastructure", "cluster": "itself"}
    office.alertmanager.fire(
        {"alertname": "ArgusRulesBehind", **shared}, {"alertname": "ArgusL3WorkerBehind", **shared}
    )
    text = paged(office, "cluster itself")
    assert silenced(text) == '{alertname=~"Argus.+", cluster="itself"}'


def test_a_job_with_a_space_can_be_silenced(office: Office) -> None:
    """In mail, where Alertmanager escapes by itself, as in text."""
    office.alertmanager.fire(labels("ArgusStragglerRank", "ticket", "my run+2", rank="3"))
    (mail, *_) = wait_for(
        lambda: [m for m in office.smtp.mails() if "Job my run" in m.part("plain")], PATIENCE_S, "the mail"
    )
    for kind in ("plain", "html"):
        said = silenced(mail.part(kind))
        assert said == '{alertname="ArgusStragglerRank", training_job=~"my.run.2"}'


def test_twins_are_named_and_silenced_by_cluster(office: Office) -> None:
    """Two jobs of one name: the page says which, and its link to silences leaves the other alone."""
    office.alertmanager.fire(
        labels("ArgusStragglerRank", "page", "twin", rank="3", cluster="a"), annotations=ANNOTATIONS
    )
    pager = paged(office, "Job twin")
    assert pager.startswith("Job twin, cluster a\n")
    assert silenced(pager) == '{alertname="ArgusStragglerRank", training_job="twin", cluster="a"}'
    office.alertmanager.fire(labels("ArgusStragglerRank", "page", "twin", rank="3", cluster="eu west"))
    silence = silenced(paged(office, "cluster eu west"))
    assert silence == '{alertname="ArgusStragglerRank", training_job="twin", cluster=~"eu.west"}'


def test_a_set_of_ranks_is_one_of_them(office: Office) -> None:
    """Nothing tells which."""
    office.alertmanager.fire(
        labels("ArgusStragglerRank", "ticket", "sets", set="tp:dp0.pp1"), annotations=ANNOTATIONS
    )
    mail = wait_for(
        lambda: [m for m in office.smtp.mails() if "Job sets" in m.part("plain")], PATIENCE_S, "the mail"
    )[0]
    assert "Where: one of the ranks of tp:dp0.pp1\n" in mail.part("plain")


def test_a_storm_is_one_short_message(office: Office) -> None:
    """Forty alerts: the number, and five of them."""
    alerts = [labels("ArgusHostStall", "page", "storm", "algorithm", rank=str(rank)) for rank in range(40)]
    office.alertmanager.fire(*alerts, annotations=ANNOTATIONS)
    [chat] = wait_for(
        lambda: [
            attachment
            for one in office.http.deliveries("/slack/algorithm")
            for attachment in one.body["attachments"]
            if "(+39)" in attachment["title"]
        ],
        PATIENCE_S,
        "the message",
    )
    assert chat["text"].count("*Since*") == 5
    assert "and 35 more" in chat["text"]
    assert len(chat["text"]) < 3500, "what Slack shows without 'Show more' on few screens"


def test_information_goes_to_chat_alone(office: Office) -> None:
    """No pager, no mail."""
    office.alertmanager.fire(
        labels("ArgusStragglerRank", "info", "chatty", rank="1"), annotations=ANNOTATIONS
    )
    [chat] = office.request(0, "/slack/info")["attachments"]
    assert chat["title"].startswith("INFO: ")
    assert not any("chatty" in json.dumps(one.body) for one in office.http.deliveries("/pagerduty"))


def test_a_webhook_gets_everything(tmp_path: Path) -> None:
    """Labels and annotations as JSON, with a bearer token from a file."""
    with http_recorder() as http:
        config = hurried(load("alertmanager.webhook.yaml"))
        config = json.loads(json.dumps(config).replace("https://hooks.example.com", http.url))
        config = with_secrets(config, tmp_path, {"webhook-token": "t0ken"})
        with running(config, tmp_path / "run") as alertmanager:
            slow = labels("ArgusStragglerRank", "page", "llm", rank="3")
            alertmanager.fire(slow, annotations=ANNOTATIONS)
            [one] = wait_for(lambda: http.deliveries("/argus/operations/page"), PATIENCE_S, "the request")
        assert one.authorization == "Bearer t0ken"
        [alert] = one.body["alerts"]
        assert (alert["labels"], alert["annotations"]) == (slow, ANNOTATIONS)


@pytest.mark.parametrize(
    ("name", "key"),
    [("slack", "slack_configs"), ("pagerduty", "pagerduty_configs"), ("email", "email_configs")],
)
def test_one_kind_alone_says_the_same(name: str, key: str) -> None:
    """The configuration of a single kind has the receivers of the complete one, so its messages too."""
    complete = {receiver["name"]: receiver for receiver in load("alertmanager.yaml")["receivers"]}
    for receiver in load(f"alertmanager.{name}.yaml")["receivers"]:
        assert set(receiver) == {"name", key}
        if key in complete[receiver["name"]]:
            assert receiver[key] == complete[receiver["name"]][key]
