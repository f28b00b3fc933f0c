"""The pages that bench.rules lets Prometheus scrape."""

from __future__ import annotations

import threading
import time
import urllib.request

import pytest
from bench.rules_exporters import Exporters
from bench.series_writer import Series

from argus_core import remote_write
from bench import rules

STEP = 4.0


def series(instance: str, value: float) -> Series:
    labels = remote_write.labels_of("argus_steps", instance=instance, job="argus", rank="1")
    return Series(labels, value, 2.0)


def page(exporters: Exporters, instance: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{exporters.port}/{instance}", timeout=5) as answer:
        return str(answer.read().decode())


def test_a_page_has_the_values_of_now_and_no_labels_of_the_scrape() -> None:
    """Two a step, since the step that `began` names."""
    began = time.time() - 10 * STEP
    with Exporters([series("host0:9877", 100.0)], began=began, step=STEP) as exporters:
        name, value = page(exporters, "host0:9877").split()
    assert name == 'argus_steps{rank="1"}'
    assert 120.0 <= float(value) < 125.0


def test_a_past_moment_is_stamped_and_lasts_until_every_page_was_scraped() -> None:
    """Whoever plays it waits for the last host."""
    began = time.time() - 100 * STEP
    hosts = ("host0:9877", "host1:9877")
    with Exporters([series(host, 0.0) for host in hosts], began=began, step=STEP) as exporters:
        moment = began + 50 * STEP
        played = threading.Thread(target=exporters.play, args=(moment,), daemon=True)
        played.start()
        while len(page(exporters, hosts[0]).split()) < 3:
            pass
        _, value, stamp = page(exporters, hosts[0]).split()
        assert float(value) == pytest.approx(100)
        assert stamp == str(round(moment * 1000))
        assert played.is_alive()
        page(exporters, hosts[1])
        played.join(5)
        assert not played.is_alive()
        exporters.go_live()
        assert len(page(exporters, hosts[0]).split()) == 2


def test_each_host_is_a_target() -> None:
    """With the instance that its series have."""
    exporters = Exporters([series("host0:9877", 0.0)], began=0.0, step=STEP)
    config = exporters.scrape_config(15)
    assert config["scrape_interval"] == "15s"
    assert [one["labels"] for one in config["static_configs"]] == [
        {"instance": "host0:9877", "__metrics_path__": "/host0:9877"}
    ]


def test_a_measurement_that_is_too_short_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, before anything is started."""
    monkeypatch.setattr("sys.argv", ["bench.rules", "--minutes", "0.5"])
    with pytest.raises(SystemExit) as ended:
        rules.main()
    assert ended.value.code == 2
    assert "--minutes is below 2" in capsys.readouterr().err
