// text: a GGUF file's tokenizer as a Hugging Face directory.
#pragma once

#include <string>

namespace kpd::io {
class GgufMetadata;
}

namespace kpd::text {

// Writes tokenizer.json and tokenizer_config.json into `directory`, which is made if it is not there. They give the ids of
// Tokenizer::from_gguf, with one exception: SentencePiece models whose scores have ties between different pieces, since a merge
// list has no ties. Throws what from_gguf throws, and Error(kIo).
void write_tokenizer_directory(const io::GgufMetadata& metadata, const std::string& directory);

}  // namespace kpd::text
