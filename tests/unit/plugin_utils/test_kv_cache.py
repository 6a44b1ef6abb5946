# Copyright: dgx_spark.vllm maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Pages, groups and blocks over plain values."""

from __future__ import annotations

import pytest
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.attention import LayerCache, State
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.checkpoint import InputError
from ansible_collections.dgx_spark.vllm.plugins.plugin_utils.kv_cache import (
    KvLayout,
    Page,
    Rules,
    hybrid_block,
    kv_dtype,
    make_groups,
    page_blocks,
    runs_on_v2,
    state_bytes,
    token_bytes,
)
from hypothesis import given, settings
from hypothesis import strategies as st

NEW = Rules("0.33.0", in_flight_tokens=4096)
OLD = Rules("0.25.1", in_flight_tokens=2048)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("auto", 8 * 256 * 2),
        ("fp8", 8 * 256),
        ("float32", 8 * 256 * 4),
        ("nvfp4", 8 * 2 * (64 + 8)),
        ("int4_per_token_head", 8 * (128 + 8)),
        ("int8_per_token_head", 8 * (256 + 8)),
    ],
)
def test_bytes_of_a_token_by_format(dtype: str, expected: int) -> None:
    cache = LayerCache(0, "full", kv_heads=8, head_dim=128, head_dim_v=128)
    assert token_bytes(cache, kv_dtype(dtype)) == expected


def test_heads_are_divided_but_never_below_one_and_latent_rows_are_not() -> None:
    full = LayerCache(0, "full", kv_heads=2, head_dim=128, head_dim_v=128)
    latent = LayerCache(0, "mla", head_dim=576)
    assert [token_bytes(full, kv_dtype("auto"), tensor) for tensor in (1, 2, 4)] == [1024, 512, 512]
    assert [token_bytes(latent, kv_dtype("auto"), tensor) for tensor in (1, 4)] == [1152, 1152]
    assert token_bytes(latent, kv_dtype("fp8_ds_mla")) == 656


def test_an_unknown_format_is_refused_by_name() -> None:
    with pytest.raises(InputError) as refused:
        kv_dtype("fp7")
    assert refused.value.field == "kv_cache_dtype"


def test_state_in_the_dtype_of_its_family_or_of_the_flag() -> None:
    cache = LayerCache(0, "mamba2", states=(State(100, 3), State(50, 8, dtype="float32")))
    assert state_bytes(cache, 1, 0, 2, None) == 100 * 3 * 2 + 50 * 8 * 4
    assert state_bytes(cache, 1, 0, 2, "bfloat16") == 100 * 3 * 2 + 50 * 8 * 2


@pytest.mark.parametrize(
    ("page", "rules", "context", "blocks"),
    [
        (Page("full", 16, 1), NEW, 1000, 63),
        (Page("sliding", 16, 1, 1024), NEW, 32768, 321),  # ceil((1023 + 4096) / 16) + 1
        (Page("sliding", 16, 1, 1024), OLD, 32768, 193),  # before 0.26: one batch
        (Page("sliding", 16, 1, 1024), NEW, 64, 5),  # never more than the context, and one
        (Page("chunked", 16, 1, 8192), NEW, 131072, 768),
        (Page("state", 544, 1), NEW, 131072, 1),
        (Page("state", 544, 1), Rules("0.33.0", 4096, speculative_tokens=3), 131072, 4),
        (Page("state", 544, 1), Rules("0.33.0", 4096, 3, state_mode="align"), 131072, 5),
        (Page("state", 544, 1), Rules("0.33.0", 4096, 3, 0, "align", 1), 131072, 6),
        (Page("state", 512, 1), Rules("0.26.0", 4096, 2, state_mode="all"), 131072, 258),
    ],
)
def test_blocks_of_a_request(page: Page, rules: Rules, context: int, blocks: int) -> None:
    assert page_blocks(page, context, rules) == blocks


@pytest.mark.parametrize(
    ("sliding", "full", "expected"),
    [
        (20, 10, [10, 10, 10]),
        (12, 13, [12, 13]),  # close enough: the larger number is the size of a group
        (52, 10, [8, 8, 9, 9, 9, 9, 10]),
    ],
)
def test_layers_are_dealt_into_groups(sliding: int, full: int, expected: list[int]) -> None:
    pages = [Page("sliding", 16, 64, 128)] * sliding + [Page("full", 16, 64)] * full
    assert sorted(len(group.layers) for group in make_groups(pages, NEW)) == expected


def test_smaller_pages_take_more_tokens_and_states_are_padded() -> None:
    pages = [Page("full", 16, 64), Page("sliding", 16, 128, 128), Page("state", 512, 100)]
    groups = make_groups(pages, NEW)
    assert {(p.kind, p.block, p.bytes) for g in groups for p in g.pages} == {
        ("full", 32, 128),
        ("sliding", 16, 128),
        ("state", 512, 128),
    }


def test_the_same_kind_in_two_sizes_is_one_group() -> None:
    pages = [Page("mla", 64, 1000), Page("indexer", 64, 100)] * 3
    (group,) = make_groups(pages, NEW)
    layout = KvLayout((group,), (0,) * 6, 1, 1, 64, NEW)
    assert layout.bytes_per_block == (3300,)
    assert layout.concurrency([33000], 640) == 1.0


def test_the_node_with_fewest_blocks_decides() -> None:
    pages = [Page("full", 16, 100)] * 3
    layout = KvLayout(tuple(make_groups(pages, NEW)), (0, 0, 1), 2, 1, 16, NEW)
    assert layout.bytes_per_block == (200, 100)
    assert layout.num_blocks([2000, 10000]) == 10
    assert layout.request_bytes(32) == (400, 200)


def test_one_block_is_held_back_since_0_29() -> None:
    pages = [Page("full", 16, 100)]
    for version, fits in (("0.28.0", True), ("0.29.0", False)):
        rules = Rules(version, 1)
        layout = KvLayout(tuple(make_groups(pages, rules)), (0,), 1, 1, 16, rules)
        assert layout.fits([1000], 160) is fits
        assert layout.largest_context([1000], 10_000) == (160 if fits else 144)


def test_tokens_as_old_versions_printed_them() -> None:
    pages = [Page("sliding", 16, 64, 128), Page("full", 16, 64)]
    rules = Rules("0.19.0", 16)
    layout = KvLayout(tuple(make_groups(pages, rules)), (0, 0), 1, 1, 16, rules)
    assert layout.kv_tokens([64 * 101], 1600) == 101 // 2 * 16


def test_hybrid_block_grows_until_a_page_holds_a_state() -> None:
    assert hybrid_block(2048, 1_097_728, 16) == (544, 544 * 2048)
    assert hybrid_block(1152, 2_170_880, 16)[0] == 1888
    assert hybrid_block(1152, 2_170_880, 128)[0] == 1920
    assert hybrid_block(1024, 100_000, 16, chunk=256)[0] == 256


@pytest.mark.parametrize(
    ("architecture", "moe", "hybrid", "method", "version", "expected"),
    [
        ("LlamaForCausalLM", False, False, None, "0.26.0", True),
        ("GptOssForCausalLM", True, False, None, "0.26.0", False),
        ("Qwen2MoeForCausalLM", True, False, None, "0.26.0", True),
        ("DeepseekV4ForCausalLM", True, False, None, "0.28.0", True),
        ("DeepseekV4ForCausalLM", True, False, None, "0.27.0", False),
        ("Qwen3NextForCausalLM", True, True, None, "0.28.0", False),
        ("Qwen3NextForCausalLM", True, True, None, "0.33.0", True),
        ("LlamaForCausalLM", False, False, "suffix", "0.33.0", False),
    ],
)
def test_which_model_runner(
    architecture: str, moe: bool, hybrid: bool, method: str | None, version: str, expected: bool
) -> None:
    assert runs_on_v2(architecture, moe, hybrid, method, version) is expected


_PAGES = st.lists(
    st.one_of(
        st.builds(Page, st.just("full"), st.just(16), st.sampled_from([64, 128])),
        st.builds(Page, st.just("sliding"), st.just(16), st.just(64), st.sampled_from([128, 1024])),
        st.builds(Page, st.just("chunked"), st.just(16), st.just(64), st.just(512)),
        st.builds(Page, st.just("state"), st.just(512), st.just(50)),
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(_PAGES, st.integers(1, 4), st.sampled_from(["0.19.0", "0.25.1", "0.26.0", "0.33.0"]), st.data())
def test_layouts_hold_their_promises(pages: list[Page], stages: int, version: str, data: st.DataObject) -> None:
    rules = Rules(version, 2048)
    stage_of = tuple(index * stages // len(pages) for index in range(len(pages)))
    layout = KvLayout(tuple(make_groups(pages, rules)), stage_of, stages, 1, 16, rules)
    assert sorted(p for group in layout.groups for p in group.layers) == list(range(len(pages)))
    context = data.draw(st.integers(1, 100_000))
    longer = data.draw(st.integers(context, 200_000))
    assert all(a <= b for a, b in zip(layout.request_bytes(context), layout.request_bytes(longer), strict=True))
    available = [data.draw(st.integers(0, 10_000_000)) for _stage in range(stages)]
    best = layout.largest_context(available, 200_000)
    assert best == 0 or layout.fits(available, best)
    assert best == 200_000 or not layout.fits(available, best + 1)
    states = layout.request_state_bytes(context)
    assert all(0 <= a <= b for a, b in zip(states, layout.request_bytes(context), strict=True))
