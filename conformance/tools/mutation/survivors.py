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
    "gpu": "On the CPU host and device memory of a column are one, and copies and pinning do nothing. "
    "`make test-gpu` is for these.",
}

EQUIVALENT = _by_id(
    {
        "dead": """V1History-e66db788 V1History-a1f7d587 V1History-16dad781 V1History-7a043a4d V1History-1b42e010
            V1History-f82db100 V1History-485d5e47 V1History-b350aadd V1History-7b479337 V1History-952e4636
            V1History-85cc8a9f V1History-3c415a21 V1History-f82f1df8 V1History-1b72c655 V1History-930e16a8
            V1History-9b75a00e V2History-0e7572a2 V1Binding-564cd21d V1Binding-99930c74 V1Binding-28bcaa9e
            V1Binding-1e3cf808 V2Binding-04219d3d Column-13601eae Column-5b88db46 column-70bd4aeb Arena-f3681194
            Arena-423c8be8 Arena-ca74451f SparseLogits-59113210 SparseLogits-aa37e49c V1Base-8f146e40
            V1Base-18aee3ea V1Base-f6045ee4 DenseMinP-65a3e084 DenseMinP-2e74d4ee Lazy-ddc6442c SoftCap-cf5e9da7
            SoftCap-e0ebddaf SoftCap-3efb3a3b AdapterLast-ffb00e15""",
        "loop": """Ledger-293ad2bd Ledger-e6bb1b10 Ledger-18f35150 V1History-1b657be5 V1History-eef902a8
            Arena-a379961c Arena-43ea930f ByHand-1feaf782 ByHand-1feaf782-1 ByHand-1feaf782-2 DenseMinP-15d16af4
            Ledger-67120bab-3 V1History-f217b13c SeededNoise-addabe31 OwnGenerator-2dd2ba4b DropsTheBest-e019b752
            Indirect-011537c9""",
        "order": """V1History-26d3243a V1History-9e5e8f1c V2History-9fa104c1 V2Binding-6f5b9595 V2Binding-5212ebac
            Rows-316aa7e7 Rows-8f069fe0 Arena-1f450468 V1History-5a39cc0e V1History-97222190 V1History-fb8f49b4
            DenseMinP-cd14c414 DenseMinP-f49b33ab PortableMinP-53eb18e5 PortableBias-c00ecce9""",
        "slower": """V1History-a595ac7b V1History-a9e91d1a V1History-dc174d9c V1History-837a5232 V1History-30b0b9eb
            V2History-fc52ec35 V1Binding-c5b8051c V1Binding-426e6705 V1Binding-e2dbf40f V1Binding-afd34e86
            V2Binding-8f996aa3 V2Binding-6ddefd79 V2Binding-d13a97a8 V2Binding-186de8f2 Arena-9cc92d85
            Arena-9cc92d85-1 Arena-497e812a Arena-907cc059 Arena-0c746207 Entry-18ff5f22 Ledger-3507432d
            Ledger-3507432d-1 V1History-0281df52 V1History-2b914378 V1History-1d9cc251 V1Binding-6ba08609
            DenseMinP-95ec81f8 DenseMinP-94fb6ae6 DenseMinP-be7577c0 PortableLength-43f33f17 TwoFaced-d74b15a2
            AdapterLength-f4e0f64a""",
        "engine": " V1History-f43465f1",
        "guard": """Rows-4e1147e8 Rows-35f05470 Rows-3eb56dfd Rows-c6a7d816 Rows-923ae034 column-f68541f1
            column-589bbfbd column-8c4c3542 column-7631e776 column-2c591d27 column-756fe39c column-5335d5a1
            column-3fbc6363 column-3629a976 column-dfa269bc column-ff4e1329""",
        "log": """V1Binding-a43910d3 V1Binding-52c4de37 V1Binding-56415c54 V1Binding-90959421 V1Binding-d2efbf4f
            V1Binding-23436654 V1Binding-4cf31e3e V1Binding-89dfbcfd""",
        "name": "V2Bias-57d59fe1 V2LastToken-5259b0d8 V2Presence-3cd45c17 V2Loop-b94f325c V2Seeded-9e15069a",
        "typing": """column-6a9cf8a9 ByHand-70d45ae2 History-8fe32826 History-932c92f2 column-c3e8cef6
            column-f1458f88 column-d6712921""",
        "memory": "V1Binding-132649e7 V2Binding-58d20930 V2Binding-11786668",
    }
)

GPU_ONLY = _by_id(
    {
        "gpu": """V1History-b97f0c92 V1History-cf362dba V1Binding-592a4911 V1Binding-b84a2a5b V1Binding-23cc73a1
            V2Binding-de6cfc96 V2Binding-32909abf Column-d31f2969 Column-7b610d31 Column-50460ffb Column-364c1b05
            Arena-84b97cfb Arena-f8bb853c Arena-02f02a2d Arena-794af3cf Arena-96d785ea Arena-d554f057 Arena-bbfeb160
            Arena-fda2d916 Arena-9817f8d4 Arena-513ab0b4 Arena-268ce413 Arena-3c1e3e7a Arena-caa46785 Arena-16f7eec5
            Arena-50286ab2 Arena-d04c6bd2"""
    }
)

OTHER_RULE = _by_id(
    {
        "another": """DenseMinP-0334e968 DenseMinP-0fc484b0 Sharpen-d46e45ed Sharpen-d581f0e2 History-4b4f571b
            CountingCache-f02ec5ff SeededNoise-e89703a4 OwnGenerator-526b0e69 OwnGenerator-a04320e6
            NoRepeatBigram-7d8ef988 NoRepeatBigram-2e8c97d9 NoRepeatBigram-ffe05115 NoRepeatBigram-215d8ecb
            Sharpen-0acaa1d5 DropsTheBest-d5523182 V2MinP-ef5d5013 V2History-c6367cb2 V2Presence-e5756ff9
            V2AlwaysOn-22f14fb5 V2Loop-6204c9e3 PortableMinP-d502ad31 PortableLength-b2391c1e
            PortableCopyBoost-6e762eb4 PortableXtc-c9ff3bdb PortableXtc-47ac36a1 PortableDefaults-e6e87924
            _ban_until-87638b38""",
        "range": """History-f59b6b06 V2MinTokens-1ccba903 PortableBias-55070505 PortableLength-d5d8d89c
            PortableDefaults-b30220ea PortableBan-0ddac104 AdapterBase-2af4b061""",
        "ignored": "PortableMinP-cd4a00bc PortableBias-993dd038 PortableDefaults-3ea7ad5b",
    }
)
