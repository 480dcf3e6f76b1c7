"""A small cluster on virtual time: the same simulation as `make scale`."""

import pytest

from tests.sim.scale import Cluster, Figures, Simulation, problems

SMALL = Cluster(
    hosts=6, runs_at_once=3, workers=5, runs=30, tasks=20, calls_at_once=60, requests_per_minute=300, deaths=4
)


@pytest.fixture(scope="module")
def figures() -> Figures:
    return Simulation(SMALL).play()


def test_every_run_is_complete_though_hosts_die_and_limits_are_kept(figures: Figures) -> None:
    assert problems(SMALL, figures) == []
    assert figures.peak_minute == SMALL.requests_per_minute, "the limit was reached, else it proves nothing"


def test_only_calls_under_way_in_a_host_that_died_are_made_again(figures: Figures) -> None:
    assert len(figures.takeovers) >= SMALL.deaths
    assert min(figures.takeovers) >= SMALL.heartbeat
    assert 0 < figures.cut <= len(figures.takeovers) * SMALL.workers
    assert figures.repeated == 0


def test_a_reply_that_is_asked_for_again_though_it_is_recorded_is_noticed() -> None:
    simulation = Simulation(SMALL)
    simulation.provider.recorded["Do part 0 of run0."] = 1
    assert problems(SMALL, simulation.play()) == ["1 calls were made again although their replies were recorded"]
