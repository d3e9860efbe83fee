from vllm.models.kimi_k3.nvidia.model import KimiK3Model


def test_no_layers_changes_nothing():
    assert KimiK3Model(None, [], None).forward("hidden", None) == "hidden"
