// llm: the lists of known_names.h.
//
// Why lists of what does not matter, and not of what does: a key that a later transformers adds to one of our families changes
// numbers as a rule (head_dim, layer_types, llama_4_scaling_beta all came so), and a wrong number looks like a right one. A
// harmless key that is refused is a sentence that names it, and a line here. What such keys are is known: transformers' base
// class, generation and training settings that it once kept in config.json, and the marks of exporters.
#include "llm/known_names.h"

#include <array>

#include "base/glob.h"

namespace kpd::llm {
namespace {

template <size_t kCount>
bool matches_one(const std::array<std::string_view, kCount>& patterns, std::string_view text) {
  for (const std::string_view pattern : patterns) {
    if (fits_pattern(pattern, text)) return true;
  }
  return false;
}

constexpr auto kTensors = std::to_array<std::string_view>(
    {// Tables that follow from the configuration, in files of older programs.
     "*rotary_emb.inv_freq", "*rotary_emb.cos_cached", "*rotary_emb.sin_cached", "blk.*.attn_rot_embd.weight",
     "*.attn.masked_bias", "*.self_attn.masked_bias", "*position_ids",
     // The other halves of models for images and sound.
     "vision_tower.*", "model.vision_tower.*", "vision_model.*", "model.vision_model.*", "multi_modal_projector.*",
     "model.multi_modal_projector.*", "audio_tower.*", "model.audio_tower.*", "embed_vision.*", "model.embed_vision.*",
     "embed_audio.*", "model.embed_audio.*", "v.*", "a.*", "mm.*",
     // Heads for the tokens after the next (multi-token prediction).
     "mtp.*", "model.mtp.*", "model.mtp_layers.*", "blk.*.nextn.*"});

constexpr auto kConfig = std::to_array<std::string_view>(
    {// What transformers' base class keeps of any model.
     "_*", "architectures", "model_type", "transformers_version", "transformers.*", "torch_dtype", "dtype", "auto_map",
     "attn_implementation", "return_dict", "output_hidden_states", "output_attentions", "output_scores",
     "return_dict_in_generate", "use_cache", "cache_implementation", "use_return_dict", "is_decoder", "chunk_size_feed_forward",
     "id2label", "label2id", "num_labels", "problem_type", "task_specific_params", "finetuning_task", "tokenizer_class",
     "prefix",
     // Tokens: the tokenizer's files say them.
     "bos_token*", "eos_token*", "pad_token*", "sep_token*", "cls_token*", "unk_token*", "mask_token*",
     "decoder_start_token_id", "*_token_id", "*_token_ids", "*_token_index", "forced_*", "suppress_tokens",
     "begin_suppress_tokens", "bad_words_ids",
     // Generation: generation_config.json and the user say it.
     "do_sample", "temperature", "top_k", "top_p", "typical_p", "min_p", "max_length", "min_length", "max_new_tokens",
     "num_beams", "num_beam_groups", "num_return_sequences", "diversity_penalty", "length_penalty", "repetition_penalty",
     "early_stopping", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty",
     "remove_invalid_values", "generation_config",
     // Training.
     "initializer_range", "initializer_factor", "init_method", "init_std", "*dropout", "*_dropout_*", "*_pdrop",
     "pretraining_tp", "gradient_checkpointing*", "*_loss_coef", "*_loss_weight", "output_router_logits",
     "embedding_initializer_range", "use_flash_attn*", "flash_attn*", "neftune_noise_alpha",
     // Contexts for which something was trained or served; max_position_embeddings is the one that is read.
     "model_max_length", "max_sequence_length", "max_seq_len", "max_seq_length", "seq_length",
     // Marks of programs that trained or exported.
     "unsloth*", "is_llama_config", "language", "license", "name_or_path", "base_model*", "mergekit*", "trust_remote_code",
     // The other halves of models for images and sound.
     "vision_config", "audio_config", "vision_*", "mm_tokens_per_image", "projector_hidden_act", "multimodal_projector_bias",
     "spatial_merge_size", "image_*", "vision_feature_layer",
     // Of hybrids' classes; a layer that is no attention is refused by its layer type.
     "mamba_*", "time_step_*",
     // Heads for the tokens after the next.
     "num_nextn_predict_layers", "mtp_*"});

// Keys that matter, with the value that every model here has.
struct Usual {
  std::string_view key, json;
};
constexpr auto kUsual = std::to_array<Usual>({{"full_attn_mod", "1"},
                                              {"interpolate_factor", "1"},
                                              {"normalization_function", "\"rmsnorm\""},
                                              {"position_embedding_type", "\"rope\""},
                                              {"layer_norm_type", "\"rms\""},
                                              {"is_causal", "true"},
                                              {"num_local_experts", "0"},
                                              {"num_experts", "0"},
                                              {"num_experts_per_tok", "0"}});

constexpr auto kGguf = std::to_array<std::string_view>(
    {"tensor_data_layout", "rope.scaling.finetuned",
     // The other halves of models for images and sound.
     "vision.*", "audio.*", "mm.*",
     // Of models that are dense and keep attention in every layer: a converter writes them from a configuration that has more.
     "expert_*", "ssm.*", "moe_*", "leading_dense_block_count", "interleave_moe_layer_step"});

}  // namespace

bool is_harmless_tensor(std::string_view name) { return matches_one(kTensors, name); }

bool is_harmless_config(std::string_view key, const io::Json& value) {
  if (value.is_null() || value == "" || ((value.is_array() || value.is_object()) && value.empty())) return true;
  for (const Usual& usual : kUsual) {
    if (usual.key == key) return value.dump(-1, ' ', true, io::Json::error_handler_t::replace) == usual.json;
  }
  if (value == false) return true;
  return matches_one(kConfig, key);
}

bool is_harmless_gguf(std::string_view key, const io::GgufValue& value) {
  const auto is_zero = [](const auto& v) {
    using Value = std::decay_t<decltype(v)>;
    if constexpr (std::is_arithmetic_v<Value>) {
      return v == Value{};
    } else {
      return v.empty();
    }
  };
  return std::visit(is_zero, value) || matches_one(kGguf, key);
}

}  // namespace kpd::llm
