"""Why mutants that pass the suite may: judged by hand, one by one. The ids are those of ``Mutant.id``."""

from __future__ import annotations

from collections.abc import Mapping


def _by_id(groups: Mapping[str, str]) -> dict[str, str]:
    return {name: reason for reason, names in groups.items() for name in names.split()}


REASONS = {
    "dead": "The changed statement has no effect, or its value is replaced before anything reads it.",
    "loop": "A `continue` at the end of a loop, or a jump behind another jump.",
    "order": "The arguments of a symmetric function, or an index or a value that means the same (`shape[-1]` of one "
    "dimension, None for False).",
    "slower": "The same results by a longer way: more copies, padding or work, no other value.",
    "engine": "Differs only for batch updates that vLLM never sends: a one-way move onto an occupied row, a "
    "placeholder followed by a known token.",
    "guard": "Changes what is said or done to an author who misuses the SDK; a correct processor never gets there. "
    "The SDK's own tests hold these messages.",
    "name": "Renames the class: the same processor.",
    "log": "Changes a log message or how often it is written. The SDK's own tests hold it.",
    "typing": "A signature of a `Protocol` or a default hook whose arguments nobody reads.",
    "memory": "A finished request's callable is kept until its slot is used again: bounded by the number of slots.",
    "another": "Another function of the same arguments and tokens: other tokens, another strength, the other stage.",
    "range": "Other values are accepted, or another one is the default.",
    "ignored": "An argument is read and has no effect.",
    "gpu": "On the CPU host and device memory of a column are one, and copies and pinning do nothing. "
    "`make test-gpu` is for these.",
}

EQUIVALENT = _by_id(
    {
        "dead": """history_v1-10afee7e history_v1-083fdfe1 history_v1-4fd9c9a2 history_v1-61d64c70 history_v1-e0e5269e
            history_v1-56c95aad history_v1-78acdf10 history_v1-8f71a3d9 history_v1-4161bf81 history_v1-7486ee0c
            history_v1-01aac86f history_v1-03a97e42 history_v1-38338402 history_v1-1d3e0fe2 history_v1-a052ec91
            history_v1-3439ea84 history_v1-2e9e30c4 history_v2-0f8dbcbd binding_v1-4298b7cd binding_v1-447b03cc
            binding_v1-7fca75c0 binding_v1-65bd642c binding_v2-10cad4ee columns-fc2f21bd columns-8e6988fe
            columns-1b2c65cf columns-c5e0964f columns-46b496bb columns-fee8e401 rows-ef4978d2 ledger-dec748ca
            rows-385bc9fe correct-a184883c correct-0255b3ef correct-0df93ec8 correct-1d730ba5 correct-e6a03650
            correct-b66882c9 correct-7fd1a3c6 correct-e2657fdb correct-d767bb41 correct-c7e58f8e""",
        "loop": """ledger-3c987b2d ledger-8d76044b ledger-810c0a9d history_v1-cb377c34 history_v1-e6fe6894
            columns-6f2479e2 columns-e9b10367 correct-6c6889b3 correct-6c6889b3-1 correct-6c6889b3-2 correct-48abd321
            ledger-29af4888-3 history_v1-aa61d8e1 correct-54f421de correct-1b7de82c correct-73b953cc
            correct-026e7180""",
        "order": """history_v1-36d4a346 history_v1-014c3e60 history_v2-4a5e4096 binding_v2-6ea42db9
            binding_v2-7d8d7b3c rows-60f7af8e rows-28baa04e columns-43be77ba history_v1-27e5b939
            history_v1-081ef104 history_v1-a7d14779 correct-1f32c9fc
            correct-0c9b05b6 correct-0aeb0be8 correct-0e58c7ae""",
        "slower": """history_v1-1572206a history_v1-02fd62c2 history_v1-044572f3 history_v1-2b9a78c6
            history_v1-18709b1c history_v2-35166699 binding_v1-08fa69ae binding_v1-12c9c3b5 binding_v1-20a3ddcd
            binding_v1-d5ab7611 binding_v1-d348b314 binding_v2-4ffbef5c binding_v2-5167a54e binding_v2-0e9f646c
            binding_v2-099b95bd columns-d7e97454 columns-d7e97454-1 columns-13b45cee columns-146f2304
            columns-cf2a8d6a ledger-4cc4411b ledger-b93fdfe2 ledger-b93fdfe2-1
            history_v1-47efae02 history_v1-efcfe8e5 history_v1-12ea70a4 binding_v1-73d417ba correct-2ca4de9c
            correct-06a2f9dd correct-0e8c5438 correct-2324f73c correct-3401acd9
            correct-535d2b80""",
        "engine": "ledger-f9c9ea74 history_v1-d50a8664",
        "guard": """rows-0d03cbd1 rows-4398d081 rows-606f5fb0 rows-bc6d900c rows-fff961c5 columns-4c8f6f39
            columns-9dacf4a6 columns-98a0b2b7 columns-e8a72798 columns-198a541e columns-78ebcdb2 columns-4e0baa43
            columns-e9157667 columns-f1890135 columns-4f9ddb28 columns-e202834a""",
        "log": """binding_v1-aeefcc7c binding_v1-df8dc106 binding_v1-775b80a0 binding_v1-1c81f8d1 binding_v1-74b8d770
            binding_v1-df71a92a binding_v1-09498e12 binding_v1-a92c40c1""",
        "name": "correct-6c4099ef correct-5e50e9a2 correct-301ceff0 correct-50524835 correct-2f829932",
        "typing": """columns-726fb20f correct-1f926d95 rows-8f4393db rows-97535d71 columns-117414ea columns-a9c88b94
            columns-d4a19d41""",
        "memory": "binding_v1-fd9ceebc binding_v2-35db9f94 binding_v2-65656c5f",
    }
)

GPU_ONLY = _by_id(
    {
        "gpu": """history_v1-7ab1387a history_v1-fe2a9070 binding_v1-93db8006 binding_v1-485e6bdc binding_v1-9225b901
            binding_v2-cb7c4896 binding_v2-5b853e11 columns-14bafa36 columns-483183ff columns-3327cde6
            columns-3a906a24 columns-0e3b65f4 columns-10a442a7 columns-22f56ed8 columns-0e04ee61 columns-2be5e5dc
            columns-3be915e3 columns-2b73cc2c columns-36aa3e26 columns-660648f0 columns-3b107f9f columns-6546aa2d
            columns-7e791e74 columns-063f7271 columns-f0c03ae0 columns-554dc2dc columns-eb15f225"""
    }
)

OTHER_RULE = _by_id(
    {
        "another": """correct-94ca5fd5 correct-69031145 correct-2360a0ca correct-7510580c correct-1af1075d
            correct-1e7c8ced correct-18bb9312 correct-005a27a8 correct-47755b74 correct-03d14dbe correct-304cf390
            correct-276ca79d correct-0041ed76 correct-1bf91dde correct-199f636d correct-00f9c80f correct-140d334c
            correct-19dd9ccd correct-17354dbc correct-0f78e8d0 correct-5a0af088 correct-431a1997 correct-0f27dc62
            correct-84465280 correct-00561878 correct-1b00c51f correct-40999108""",
        "range": """correct-0bfa7f83 correct-02b2ee7b correct-0774be24 correct-15a7ee9e correct-0432e29f
            correct-0e36c5f6 correct-02802cff""",
        "ignored": "correct-12e546f7 correct-135316e1 correct-24eebb77",
    }
)
