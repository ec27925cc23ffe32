"""Models of other families than the zoo's, exported and compared: python tests/torch/more_models.py [NAMES] --fxc BIN

torchvision, timm and transformers with random weights, small sizes. Each is exported, written, run compiled and interpreted at
both levels, and compared with the eager module.

Needs: torch, torchvision, timm, transformers, numpy, safetensors. Without torch it says so and checks nothing; without
one of the others its models are left out.
"""
import sys

try:
    import torch
    from torch import nn
except ImportError as e:
    print(f"SKIPPED: {e}; nothing was compared")
    sys.exit(0)
import cases

CASES = []


def perturb(m):
    """Noise for constant parameters and statistics, so that a wrong fold or a dropped bias shows in the results."""
    g = torch.Generator().manual_seed(1234)
    with torch.no_grad():
        for mod in m.modules():
            if isinstance(mod, nn.modules.batchnorm._BatchNorm) and mod.running_mean is not None:
                mod.running_mean.copy_(torch.randn(mod.running_mean.shape, generator=g) * 0.1)
                mod.running_var.copy_(torch.rand(mod.running_var.shape, generator=g) * 0.5 + 0.75)
        for p in m.parameters():
            p.requires_grad_(False)
            if p.is_floating_point() and p.numel() > 1 and float(p.max() - p.min()) == 0.0:
                p.add_(torch.randn(p.shape, generator=g) * 0.05)
    return m


def case(name, build):
    def made():
        model, args, *kwargs = build()
        return perturb(model.eval()), tuple(args), kwargs[0] if kwargs else {}

    CASES.append((name, made))


def image(size, n=1):
    return torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(7))


def ids(vocabulary=100, n=1, length=16):
    return torch.randint(1, vocabulary, (n, length), generator=torch.Generator().manual_seed(7))


# ---------------------------------------------------------------- torchvision
def torchvision_models():
    import torchvision
    from torchvision import models as M

    for name, size in [
        ("alexnet", 96), ("vgg11_bn", 64), ("resnext50_32x4d", 64), ("wide_resnet50_2", 64), ("mnasnet0_5", 64),
        ("shufflenet_v2_x0_5", 64), ("regnet_y_400mf", 64), ("regnet_x_400mf", 64), ("inception_v3", 96), ("efficientnet_v2_s", 64),
        ("mobilenet_v3_large", 64), ("convnext_small", 64), ("maxvit_t", 224), ("swin_v2_t", 64), ("vit_b_32", 224),
    ]:
        extra = {"init_weights": False} if name == "inception_v3" else {}
        case("tv." + name, lambda name=name, size=size, extra=extra: (M.get_model(name, weights=None, **extra), [image(size)]))
    for name, size in [("fcn_resnet50", 64), ("lraspp_mobilenet_v3_large", 64), ("deeplabv3_resnet50", 64)]:
        case("tv." + name, lambda name=name, size=size: (M.get_model(name, weights=None, weights_backbone=None), [image(size)]))
    for name, shape in [("mc3_18", (1, 3, 8, 64, 64)), ("r2plus1d_18", (1, 3, 8, 64, 64)), ("s3d", (1, 3, 14, 224, 224)),
                        ("swin3d_t", (1, 3, 8, 64, 64)), ("mvit_v2_s", (1, 3, 16, 224, 224))]:
        case("tv." + name, lambda name=name, shape=shape: (M.get_model(name, weights=None), [torch.randn(shape)]))
    class Flow(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = M.optical_flow.raft_small(weights=None)

        def forward(self, a, b):
            return self.net(a, b, num_flow_updates=2)

    case("tv.raft_small", lambda: (Flow(), [image(128), image(128)]))

    class Pyramid(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = M.detection.backbone_utils.resnet_fpn_backbone(backbone_name="resnet18", weights=None, trainable_layers=0)

        def forward(self, x):
            return self.net(x)

    class Boxes(nn.Module):
        """The end of a detector: boxes of the best scores, and their features."""

        def forward(self, features, boxes, scores):
            keep = torchvision.ops.nms(boxes, scores, 0.5)
            rois = torch.cat([torch.zeros(boxes.shape[0], 1), boxes], 1)
            return torchvision.ops.roi_align(features, rois, 7, 0.25, 2), keep

    class Anchors(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = M.detection.rpn.RPNHead(16, 3)

        def forward(self, x):
            return self.head([x, x[:, :, ::2, ::2]])

    def corners(n):
        xy = torch.rand(n, 2, generator=torch.Generator().manual_seed(1)) * 60
        return torch.cat([xy, xy + 20], 1)

    case("tv.fpn_resnet18", lambda: (Pyramid(), [image(64)]))
    case("tv.boxes", lambda: (Boxes(), [torch.randn(1, 4, 24, 24), corners(12), torch.rand(12)]))
    case("tv.rpn_head", lambda: (Anchors(), [torch.randn(1, 16, 16, 16)]))
    case("tv.retinanet_head", lambda: (M.detection.retinanet.RetinaNetHead(16, 3, 5), [[torch.randn(1, 16, 8, 8)]]))


# ---------------------------------------------------------------- timm
def timm_models():
    import timm

    for name in [
        "vit_tiny_patch16_224", "vit_relpos_small_patch16_224", "cait_xxs24_224", "coat_lite_tiny", "crossvit_tiny_240", "convnextv2_atto",
        "davit_tiny", "efficientformer_l1", "efficientnet_lite0", "efficientvit_b0", "efficientvit_m0", "eva02_tiny_patch14_224",
        "fastvit_t8", "focalnet_tiny_srf", "gcvit_xxtiny", "gmlp_s16_224", "gmixer_24_224", "hrnet_w18_small", "inception_next_tiny",
        "mobileone_s0", "mobilenetv4_conv_small", "nest_tiny", "pit_ti_224", "poolformer_s12", "pvt_v2_b0", "regnety_002",
        "repvgg_a0", "repvit_m0_9", "resmlp_12_224", "resnetv2_50", "rexnet_100", "selecsls42b", "sequencer2d_s", "skresnet18",
        "starnet_s1", "tiny_vit_5m_224", "tinynet_e", "twins_svt_small", "visformer_tiny", "volo_d1_224", "xception41", "dla34",
        "dpn48b", "ese_vovnet19b_dw", "hardcorenas_a", "lcnet_050", "halonet26t", "lambda_resnet26t", "botnet26t_256", "bat_resnext26ts",
        "beit_base_patch16_224", "swinv2_tiny_window8_256", "maxxvit_rmlp_nano_rw_256", "hiera_tiny_224", "ghostnetv2_100",
        "naflexvit_base_patch16_gap", "resnest14d", "cspresnet50", "ecaresnet26t", "tresnet_m",
    ]:
        def build(name=name):
            m = timm.create_model(name, pretrained=False)
            return m, [image(timm.data.resolve_model_data_config(m)["input_size"][-1])]

        case("timm." + name, build)


# ---------------------------------------------------------------- transformers
SMALL = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, vocab_size=100, max_position_embeddings=64)


def text_models(T):
    def auto(name, config, head="AutoModel", **given):
        def build():
            c = getattr(T, config)(**given)
            for off in ["use_cache", "return_dict"]:
                if hasattr(c, off):
                    setattr(c, off, off == "return_dict")
            model = getattr(T, head).from_config(c, attn_implementation="sdpa") if head.startswith("Auto") else getattr(T, head)(c)
            return model, [ids()]

        case("hf." + name, build)

    for name, config in [("albert", "AlbertConfig"), ("roberta", "RobertaConfig"), ("electra", "ElectraConfig"),
                         ("mobilebert", "MobileBertConfig"), ("ernie", "ErnieConfig"), ("camembert", "CamembertConfig"),
                         ("roformer", "RoFormerConfig"), ("layoutlm", "LayoutLMConfig"), ("mpnet", "MPNetConfig"),
                         ("nystromformer", "NystromformerConfig"), ("squeezebert", "SqueezeBertConfig")]:
        extra = dict(embedding_size=32) if name in ("electra", "albert", "squeezebert", "roformer") else {}
        extra |= dict(embedding_size=32, true_hidden_size=32, intra_bottleneck_size=32) if name == "mobilebert" else {}
        head = "MobileBertModel" if name in ("mobilebert", "nystromformer") else "AutoModel"
        head = {"mobilebert": "MobileBertModel", "nystromformer": "NystromformerModel", "squeezebert": "SqueezeBertModel",
                "roformer": "RoFormerModel", "mpnet": "MPNetModel"}.get(name, "AutoModel")
        auto(name, config, head, **(SMALL | extra))
    auto("deberta_v2", "DebertaV2Config", "DebertaV2Model", relative_attention=True, pos_att_type=["p2c", "c2p"], **SMALL)
    auto("xlnet", "XLNetConfig", "XLNetModel", d_model=32, n_layer=2, n_head=4, d_inner=64, vocab_size=100)
    auto("funnel", "FunnelConfig", "FunnelModel", d_model=32, n_head=4, d_head=8, d_inner=64, block_sizes=[1, 1], vocab_size=100)
    auto("fnet", "FNetConfig", "FNetModel", **{k: v for k, v in SMALL.items() if k != "num_attention_heads"})
    auto("convbert", "ConvBertConfig", "ConvBertModel", embedding_size=32, **SMALL)
    auto("gpt_neo", "GPTNeoConfig", "GPTNeoModel", hidden_size=32, num_layers=2, num_heads=4, vocab_size=100, attention_types=[[["global", "local"], 1]])
    auto("gpt_neox", "GPTNeoXConfig", **SMALL)
    auto("gptj", "GPTJConfig", "GPTJModel", n_embd=32, n_layer=2, n_head=4, rotary_dim=4, vocab_size=100, n_positions=64)
    auto("codegen", "CodeGenConfig", "CodeGenModel", n_embd=32, n_layer=2, n_head=4, rotary_dim=4, vocab_size=100, n_positions=64)
    for name, config in [("phi", "PhiConfig"), ("qwen2", "Qwen2Config"), ("qwen3", "Qwen3Config"), ("gemma", "GemmaConfig"), ("gemma2", "Gemma2Config"),
                         ("olmo", "OlmoConfig"), ("stablelm", "StableLmConfig"), ("starcoder2", "Starcoder2Config"), ("cohere", "CohereConfig"),
                         ("granite", "GraniteConfig"), ("phi3", "Phi3Config"), ("persimmon", "PersimmonConfig")]:
        extra = {} if name in ("persimmon",) else dict(num_key_value_heads=2)
        extra |= dict(head_dim=8) if name in ("gemma", "gemma2", "qwen3") else {}
        extra |= dict(pad_token_id=0) if name in ("phi3",) else {}
        auto(name, config, "Gemma2Model" if name == "gemma2" else "AutoModel", **(SMALL | extra))
    auto("falcon", "FalconConfig", hidden_size=32, num_hidden_layers=2, num_attention_heads=4, vocab_size=100)
    auto("mpt", "MptConfig", "MptModel", d_model=32, n_layers=2, n_heads=4, vocab_size=100, max_seq_len=64)
    auto("mixtral", "MixtralConfig", num_key_value_heads=2, num_local_experts=4, **SMALL)
    auto("mamba2", "Mamba2Config", "Mamba2Model", hidden_size=32, num_hidden_layers=1, num_heads=8, head_dim=8, state_size=8, n_groups=1,
         chunk_size=8, vocab_size=100)
    auto("rwkv", "RwkvConfig", "RwkvModel", hidden_size=32, num_hidden_layers=2, vocab_size=100, attention_hidden_size=32, context_length=32)
    auto("clip_text", "CLIPTextConfig", "CLIPTextModel", eos_token_id=2, **SMALL)


def other_models(T):
    def both(name, config, head, **given):
        def build():
            c = getattr(T, config)(**given)
            c.use_cache = False
            return getattr(T, head)(c), [], dict(input_ids=ids(), decoder_input_ids=ids(length=8))

        case("hf." + name, build)

    seq = dict(d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64,
               decoder_ffn_dim=64, vocab_size=100, max_position_embeddings=64)
    for name, config, head in [("bart", "BartConfig", "BartModel"), ("mbart", "MBartConfig", "MBartModel"),
                               ("pegasus", "PegasusConfig", "PegasusModel"), ("marian", "MarianConfig", "MarianModel"),
                               ("m2m_100", "M2M100Config", "M2M100Model")]:
        both(name, config, head, **(seq | dict(pad_token_id=0)))
    both("t5", "T5Config", "T5Model", d_model=32, d_kv=8, d_ff=64, num_layers=1, num_heads=4, vocab_size=100, decoder_start_token_id=0)

    def vision(name, config, head, size=32, **given):
        case("hf." + name, lambda: (getattr(T, head)(getattr(T, config)(**given)), [image(size)]))

    tiny = {k: SMALL[k] for k in ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"]}
    patches = tiny | dict(image_size=32, patch_size=8)
    for name, config, head in [("vit", "ViTConfig", "ViTModel"), ("deit", "DeiTConfig", "DeiTModel"), ("dinov2", "Dinov2Config", "Dinov2Model"),
                               ("beit", "BeitConfig", "BeitModel"), ("vit_mae", "ViTMAEConfig", "ViTMAEModel"),
                               ("yolos", "YolosConfig", "YolosForObjectDetection"), ("siglip_vision", "SiglipVisionConfig", "SiglipVisionModel")]:
        extra = dict(image_size=[32, 32], num_detection_tokens=5, use_mid_position_embeddings=False) if name == "yolos" else {}
        vision(name, config, head, **(patches | extra))
    vision("hf_swin", "SwinConfig", "SwinModel", image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4)
    vision("hf_convnext", "ConvNextConfig", "ConvNextModel", hidden_sizes=[8, 16], depths=[1, 1], num_stages=2)
    vision("resnet", "ResNetConfig", "ResNetModel", embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])
    vision("mobilevit", "MobileViTConfig", "MobileViTModel", size=64, hidden_sizes=[16, 24, 32], neck_hidden_sizes=[8, 8, 16, 24, 32, 40, 48], image_size=64)
    vision("pvt", "PvtConfig", "PvtModel", size=64, image_size=64, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 4])
    vision("glpn", "GLPNConfig", "GLPNForDepthEstimation", size=64, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 4],
           decoder_hidden_size=16)
    small_audio = dict(conv_dim=[16, 16], conv_kernel=[10, 3], conv_stride=[5, 2], num_feat_extract_layers=2, num_conv_pos_embeddings=16,
                       num_conv_pos_embedding_groups=4, **tiny)

    def audio(name, config, head, length=800, **given):
        case("hf." + name, lambda: (getattr(T, head)(getattr(T, config)(**given)), [torch.randn(1, length)]))

    audio("wav2vec2", "Wav2Vec2Config", "Wav2Vec2Model", **small_audio)
    audio("hubert", "HubertConfig", "HubertModel", **small_audio)
    audio("wavlm", "WavLMConfig", "WavLMModel", **small_audio)
    case("hf.audio_spectrogram", lambda: (T.ASTModel(T.ASTConfig(max_length=48, num_mel_bins=16, patch_size=8, frequency_stride=8, time_stride=8, **tiny)),
                                          [torch.randn(1, 48, 16)]))
    case("hf.time_series", lambda: (T.PatchTSTModel(T.PatchTSTConfig(num_input_channels=2, context_length=32, patch_length=8, patch_stride=8,
                                                                   num_hidden_layers=1, d_model=16, num_attention_heads=4, ffn_dim=32)),
                                    [torch.randn(1, 32, 2)]))
    case("hf.decision_transformer", lambda: (
        T.DecisionTransformerModel(T.DecisionTransformerConfig(state_dim=4, act_dim=2, hidden_size=32, n_layer=1, n_head=4, max_ep_len=32, vocab_size=1)), [],
        dict(states=torch.randn(1, 5, 4), actions=torch.randn(1, 5, 2), rewards=torch.randn(1, 5, 1), returns_to_go=torch.randn(1, 5, 1),
             timesteps=torch.arange(5)[None], attention_mask=torch.ones(1, 5))))


def collect():
    for make in [torchvision_models, timm_models]:
        try:
            make()
        except ImportError as e:
            print(f"SKIPPED: {e}")
    try:
        import transformers
    except ImportError as e:
        print(f"SKIPPED: {e}")
        return
    text_models(transformers)
    other_models(transformers)


if __name__ == "__main__":
    collect()
    sys.exit(1 if cases.table(CASES, doc=__doc__) else 0)
