// text: a tokenizer in the other kind of files: of a GGUF file as a Hugging Face directory, and back.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kpd/text/tokenizer.h"

namespace kpd::io {
class GgufMetadata;
}

namespace kpd::text {

// Writes tokenizer.json and tokenizer_config.json into `directory`, which is made if it is not there. They give the ids of
// Tokenizer::from_gguf, with one exception: SentencePiece models whose scores have ties between different pieces, since a merge
// list has no ties. Throws what from_gguf throws, and Error(kIo).
void write_tokenizer_directory(const io::GgufMetadata& metadata, const std::string& directory);

// The texts of the two files; throws what from_gguf throws.
std::pair<std::string, std::string> tokenizer_files(const io::GgufMetadata& metadata);

// Adds the keys tokenizer.* for a model of a GGUF architecture with so many rows in its embedding, one token a row. Returns
// what a reader of the file should know, a sentence each. Throws Error(kUnsupported) for what no key says: another way to cut
// texts, tokens that take what stands beside them, merges of its own.
std::vector<std::string> add_gguf_tokenizer(const Tokenizer& tokenizer, std::string_view architecture, size_t n_vocabulary,
                                            io::GgufMetadata& metadata);

}  // namespace kpd::text
