"""The three times of document 004: now, when the session began, when a summary was made."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compat.nexus3.talks import AT, Clock, call, manager, problems
from nexus.compat.nexus3.context import create_summary_message
from nexus.compat.nexus3.context.view import moment_line, stamp, with_moment_line
from nexus.errors import BadSetting

LINE = "Current date: 2026-01-13, Current time: 14:30 (UTC)"


def test_times_are_printed_to_the_minute_in_the_users_zone() -> None:
    """Document 004, "Combination": `Current date: 2026-01-13, Current time: 14:30 (local)`."""
    assert stamp(AT, "Europe/Berlin") == "2026-01-13 15:30 (local)"
    assert moment_line(AT, "Asia/Shanghai") == "Current date: 2026-01-13, Current time: 22:30 (local)"


@pytest.mark.parametrize(
    ("zone", "shown"),
    [("Asia/Shanghai", "22:30"), ("+08:00", "22:30"), ("-480", "22:30"), ("UTC-03:30", "11:00"), ("UTC", "14:30")],
)
def test_a_zone_is_an_iana_name_an_offset_or_a_browsers_minutes(zone: str, shown: str) -> None:
    """Decided on all documents: times are "in the user's zone"; "a zone may be given by IANA name too"."""
    context = manager(clock="message", timezone=zone, clock_ms=Clock())
    assert context.build_messages()[0]["content"] == f"[Session started: 2026-01-13 {shown} (local)]"


@pytest.mark.parametrize("zone", ["Mars/Olympus", "+99:00", "99999", "../x", "\ud800", "Asia/Shanghai\n"])
def test_a_zone_that_there_is_not_is_refused_with_what_can_be_given(zone: str) -> None:
    with pytest.raises(BadSetting, match="give an IANA name, an offset, a browser's minutes, or 'local'"):
        manager(timezone=zone)


@pytest.mark.parametrize("at_ms", [10**18, -(10**18), 253_402_300_800_000])
def test_a_clock_whose_time_has_no_date_is_refused_by_name(at_ms: int) -> None:
    """Decided on all documents: "Times come from the injected clock"; one that is wrong is a clear error."""
    for make in (lambda: manager(clock_ms=lambda: at_ms), lambda: create_summary_message("They spoke.", at_ms=at_ms)):
        with pytest.raises(BadSetting, match="clock value"):
            make()


def test_first_and_last_calendar_days_have_four_digit_years() -> None:
    """Document 004, "Combination": `2026-01-13 14:30`, with four digits for the year."""
    assert stamp(-62_135_596_800_000, "") == "0001-01-01 00:00 (UTC)"
    assert stamp(253_402_300_799_000, "Asia/Shanghai") == "9999-12-31 23:59 (UTC)", "the local day would be none"
    assert moment_line(-62_135_596_800_000, "America/New_York").endswith("0001-01-01, Current time: 00:00 (UTC)")


def test_without_a_zone_the_time_is_utc_and_says_so() -> None:
    assert stamp(AT, "") == "2026-01-13 14:30 (UTC)"


def test_the_machines_zone_is_used_only_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert (stamp(AT, "local"), stamp(AT, "")) == ("2026-01-13 23:30 (local)", "2026-01-13 14:30 (UTC)")
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_users_message_is_stamped_when_it_is_added_and_never_rewritten() -> None:
    """Document 004, "Temporal Context", 1; decided: "stamped when the user's message is added … nothing is rewritten"."""
    clock = Clock()
    context = manager(clock="message", clock_ms=clock)
    context.set_system_prompt("Be brief.")
    context.add_user_message("Hello!")
    first = context.build_messages()
    clock.forward(60)
    assert context.build_messages() == first
    context.add_assistant_message("Hi.")
    context.add_user_message("And now?")
    body = context.build_messages()
    assert body[: len(first)] == first
    assert first[-1]["content"] == f"{LINE}\n\nHello!"
    assert body[-1]["content"] == "Current date: 2026-01-13, Current time: 15:30 (UTC)\n\nAnd now?"
    assert "Current date" not in body[0]["content"]


def test_long_tool_loop_gets_new_time_stamp_only_after_last_result() -> None:
    """Decided on 004: "a new stamp is appended after the last result when the last one is over five minutes old"."""
    clock = Clock()
    context = manager(clock="message", clock_ms=clock)
    context.add_user_message("Build it.")
    for number in range(3):
        context.add_assistant_message("", [call(f"c{number}")])
        context.add_tool_result(f"c{number}", "read", "ok")
        before = context.build_messages()
        clock.forward(4)
    assert [one["role"] for one in before].count("user") == 3  # the session's start, the request, one stamp
    assert before[-1] == {"role": "user", "content": "Current date: 2026-01-13, Current time: 14:38 (UTC)"}
    assert context.build_messages() == before
    clock.forward(10)
    assert context.build_messages() == before, "a stamp follows results, not a stamp"
    assert problems(before) == []


def test_no_stamp_comes_between_a_call_and_its_results() -> None:
    clock = Clock()
    context = manager(clock="message", clock_ms=clock)
    context.add_user_message("Read both.")
    context.add_assistant_message("", [call("a"), call("b")])
    context.add_tool_result("a", "read", "A")
    clock.forward(30)
    context.build_messages()
    context.add_tool_result("b", "read", "B")
    body = context.build_messages()
    assert [one["role"] for one in body[-4:]] == ["assistant", "tool", "tool", "user"]
    assert [one["content"] for one in body[-3:-1]] == ["A", "B"]


def test_a_stamp_is_never_all_that_truncation_leaves_of_a_tool_loop() -> None:
    clock = Clock()
    context = manager(20, 10, clock="message", clock_ms=clock)
    context.add_user_message("Read.")
    context.add_assistant_message("", [call("a")])
    context.add_tool_result("a", "read", "A" * 200)
    clock.forward(6)
    assert [one["role"] for one in context.build_messages()] == ["user", "assistant", "tool"]


@given(st.integers(60, 140), st.integers(1, 60), st.sampled_from(["oldest_first", "middle_out"]))
def test_stamp_never_exceeds_budget_that_tool_loop_fits(max_tokens: int, words: int, strategy: str) -> None:
    def used(minutes: int) -> dict[str, int]:
        clock = Clock()
        context = manager(max_tokens, 0, strategy, clock="message", clock_ms=clock)
        context.add_user_message("Read.")
        context.add_assistant_message("", [call("a")])
        context.add_tool_result("a", "read", "word " * words)
        clock.forward(minutes)
        context.build_messages()
        return context.get_token_usage()

    without, usage = used(0), used(6)
    assert usage["total"] <= max(without["total"], usage["available"])


def test_system_clock_adds_documented_line_per_call_without_stamps() -> None:
    """Document 004, "Temporal Context", 1: "Injected fresh on every API request"."""
    clock = Clock()
    context = manager(clock_ms=clock)
    context.set_system_prompt("Be brief.\n\n# Environment\nWorking directory: here")
    context.add_user_message("Hello!")
    body = context.build_messages()
    assert body[0]["content"] == f"Be brief.\n\n# Environment\n{LINE}\nWorking directory: here"
    assert body[-1]["content"] == "Hello!"
    clock.forward(1)
    assert "14:31" in context.build_messages()[0]["content"]
    assert context.system_prompt == "Be brief.\n\n# Environment\nWorking directory: here"


def test_the_line_stands_in_the_last_environment_section_or_in_a_new_one() -> None:
    assert with_moment_line("", LINE) == f"# Environment\n{LINE}"
    assert with_moment_line("Be brief.", LINE) == f"Be brief.\n\n# Environment\n{LINE}"
    mine = "# Environment\nmy own\n\n# Environment\nWorking directory: here"
    assert with_moment_line(mine, LINE) == f"# Environment\nmy own\n\n# Environment\n{LINE}\nWorking directory: here"


@given(st.text(max_size=60))
def test_the_line_changes_nothing_else_of_a_prompt(prompt: str) -> None:
    assert with_moment_line(prompt, LINE).replace(LINE, "", 1).startswith(prompt)
