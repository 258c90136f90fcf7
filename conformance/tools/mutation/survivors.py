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
    "typing": "A signature of a `Protocol` or a default hook whose arguments are never read.",
    "memory": "A finished request's callable is kept until its slot is used again: bounded by the number of slots.",
    "another": "Another function of the same arguments and tokens: other tokens, another strength, the other stage.",
    "range": "Other values are accepted, or another one is the default.",
    "ignored": "An argument is read and has no effect.",
    "gpu": "On the CPU host and device memory of a column are one, copies and pinning do nothing, and no Triton kernel "
    "is called. `make test-gpu` is for these.",
}

EQUIVALENT = _by_id(
    {
        "dead": """AdapterLast-ffb00e15 Arena-48a6ca49 Arena-598cf619 Arena-9f9900d1 Column-0b0dd287 Column-2b77f216
            Column-3bb6dcab Column-a17a1942 Column-d1cb4f15 Declaration-c26a41b3 Declaration-d8f4ec02
            DenseMinP-2e74d4ee DropsTheBest-13ace3a4 Indirect-01f58978 Lazy-ddc6442c Rows-0475fb73
            Rows-a167f8a6 SoftCap-3efb3a3b SoftCap-cf5e9da7 SoftCap-e0ebddaf SparseLogits-59113210
            V1Base-109712de V1Base-18aee3ea V1Base-8f146e40 V1Binding-1e3cf808 V1Binding-564cd21d
            V1History-0c0c4c48 V1History-0d2b5189 V1History-16dad781 V1History-1b42e010 V1History-1b72c655
            V1History-3c415a21 V1History-485d5e47 V1History-85cc8a9f V1History-8ae5d40e V1History-930e16a8
            V1History-952e4636 V2Bias-33286574 V2Binding-04219d3d V2Binding-4af7f9bb V2Binding-50a5f8c0
            V2History-0e7572a2 V2History-31b055d7""",
        "loop": """Arena-09c2161a Arena-0c073382 Arena-21669247 Arena-2cf48dce ByHand-1feaf782 ByHand-1feaf782-1
            ByHand-1feaf782-2 CountingCache-89b02f71 DenseMinP-15d16af4 DenseMinP-7e1e9319 Indirect-011537c9
            Ledger-18f35150 Ledger-293ad2bd Ledger-2a534802-3 Ledger-67120bab-3 Ledger-e6bb1b10
            V1History-1b657be5 V1History-a5ff95ea V1History-f217b13c V2Seeded-65c58ec4""",
        "order": """Arena-5276f52f Arena-8081c38b Column-1d9cfe41 Column-266ca539 Column-add11191
            CountingCache-06d47cf1 History-3737330d Indirect-034c3b06 Indirect-0a76dc99
            PortableDefaults-0ab434e9 PortableMinP-53eb18e5 PortableRepetition-2e6cdfff PortableXtc-29210d76
            Replaying-013ca24f Rows-316aa7e7 Rows-58f750f2 Rows-5c6ac598 SoftCap-027c7920
            SparseLogits-2e184b81 SparseLogits-8ed228c0 V1History-24d07663 V1History-26d3243a
            V2Binding-106c7662 V2Binding-327af87c V2Binding-5212ebac V2Binding-6f5b9595 V2Binding-96dc4037
            V2Presence-26a169aa""",
        "slower": """Arena-0c80cd51 Arena-15635a91 Arena-1722f185 Arena-180f21f6 Arena-1c2d481e Arena-393075cc
            Arena-40953a14 Arena-497e812a Arena-4abbb6c8 Arena-4f1d48af Arena-51ca1c09 Arena-55742c37
            Arena-60e25623 Arena-60edcf10 Arena-66a474b6 Arena-67f15ccb Arena-6e329fe1 Arena-6f1f8f17
            Arena-74a56f94 Arena-833cb8e3 Arena-8c58d67b Arena-9139ac7f Arena-9c758381 Arena-9cc92d85
            Arena-ddf324b1 DenseMinP-f12a5c48 Entry-18ff5f22 Ledger-3507432d Ledger-3507432d-1
            PortableLength-15f20895 SparseLogits-060ff750-3 V1Binding-2721d906 V1Binding-2c0e7347
            V1Binding-2f633aca V1Binding-6ba08609 V1Binding-afd34e86 V1Binding-e2dbf40f V1History-0281df52
            V1History-1d9cc251 V1History-2b914378 V1History-30b0b9eb V1History-429a9161 V1History-699f3364
            V2Binding-186de8f2 V2Binding-39714aea V2Binding-504bdf4a V2Binding-5927f7a1 V2Binding-6ddefd79
            V2Binding-9dc37432 V2History-0599992c""",
        "engine": "V1History-f43465f1 V2Binding-37fcac6e",
        "guard": """Declaration-0fe2c11f Declaration-117aa1fc Declaration-7d8a71bf Declaration-8d932159
            Declaration-95445e19 Declaration-c1ca4c52 Declaration-d87abac1 Lazy-602a2ad9 Rows-35f05470
            Rows-3eb56dfd Rows-923ae034 Rows-c6a7d816 V2Bias-1e2c9a24 V2Binding-1ad201ff V2Binding-f6b710cc
            column-18cce514 column-7631e776 column-8c4c3542""",
        "log": """V1Binding-52c4de37 V1Binding-56415c54 V1Binding-80c50a3c V1Binding-89dfbcfd V1Binding-90959421
            V1Binding-a0fd4dec V1Binding-a43910d3 V1Binding-d2efbf4f""",
        "name": "V2Bias-57d59fe1 V2LastToken-5259b0d8 V2Loop-8c546724",
        "typing": """Declaration-1bddd6c4 Declaration-53d377f7 Declaration-ce29554d HasSlots-4dee1e26 HasSlots-c4a2ab1f
            History-8fe32826 History-932c92f2 History-e1e577da""",
        "memory": "V1Binding-132649e7 V2Binding-11786668 V2Binding-58d20930",
    }
)

GPU_ONLY = _by_id(
    {
        "gpu": """Arena-00216a55 Arena-03af940b Arena-07dc2781 Arena-09edbba8 Arena-130cd762 Arena-133cec78
            Arena-13f779e7 Arena-1823d7c6 Arena-1af3132b Arena-1e29f3e7 Arena-206e2c77 Arena-267d0992
            Arena-28f3c419 Arena-2b043a06 Arena-2f4efb0a Arena-35933015 Arena-381db2d4 Arena-3c2f497f
            Arena-513ab0b4 Arena-51f84883 Arena-537b6da2 Arena-5c3344bd Arena-5c97eace Arena-601fef23
            Arena-63c807e5 Arena-67def03b Arena-72800f21 Arena-7bdf8195 Arena-8c094877 Arena-a8255493
            Arena-a846e52e Arena-ba616df2 Arena-bdc96899 Arena-c51acb07 Arena-ccad391f Arena-ce899e14
            Arena-d493cc7a Arena-d82c85b1 Arena-e12f687c Arena-e8c4ad5b Arena-f9c7a5e9 Arena-ff66d2bf
            Arena-ffcaf040 Column-80161005 Column-c34dd7e6 Rows-090b5027 Rows-0d0cef54 Rows-197fa65d
            Rows-6745c354 Rows-92cb5593 Rows-982f0664 Rows-ccb4b904 Seen-61d1361d Seen-85014e6f Seen-95d7f17a
            Seen-b2cc51d6 SparseLogits-060ff750-1 SparseLogits-0b29f235 SparseLogits-13e00e7d
            SparseLogits-1989e858 SparseLogits-3a237c67 SparseLogits-53ca9f84 SparseLogits-57fdd8ca
            SparseLogits-6e926e4b SparseLogits-aac78a2c V1Binding-23cc73a1 V1Binding-592a4911
            V1Binding-b84a2a5b V1History-03db2537 V1History-22f75076 V1History-2e41625a V1History-5932a02f
            V1History-b97f0c92 V1History-c96a496e V1History-cf362dba V2Binding-2346f953 V2Binding-32909abf
            V2Binding-57d89a93 V2Binding-65d85b54 V2Binding-de6cfc96 V2History-0c45c069 V2History-122a3d44
            V2History-3d8992f6 V2History-3dad7b74 V2History-4050d799 V2History-42ea36e5 V2History-479647d1
            V2History-6e8c1b6a""",
    }
)

OTHER_RULE = _by_id(
    {
        "another": """AdapterPrompt-14470449 ByField-28db7dd6 CountingCache-2c43ebfb DenseMinP-0334e968
            DenseMinP-0fc484b0 DropsTheBest-0017c6b3 DropsTheBest-15d081ab History-16c4d033 Indirect-1a752346
            NoRepeatBigram-034943ec NoRepeatBigram-170009ca OwnGenerator-2185f565 OwnGenerator-3b785c99
            PortableCopyBoost-07c367da PortableDefaults-01e5b0ae PortableLength-0c9e091b
            PortableRepetition-065179d5 PortableXtc-1528de72 Replaying-47573860 Sharpen-0acaa1d5
            Sharpen-d46e45ed V2AlwaysOn-0954dc75 V2LastToken-0c13f7f0 V2MinP-1c2aa982 V2Seeded-08de3fe5
            _ban_until-092e7666""",
        "range": """DenseMinP-03b80f75 PortableBan-0ddac104 PortableDefaults-04448699 PortableLength-1fb10064
            PortableMinP-277ca237""",
        "ignored": "PortableBias-993dd038 PortableDefaults-3ea7ad5b",
    }
)
