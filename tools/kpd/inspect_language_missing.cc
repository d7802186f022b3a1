// tools: `kpd inspect` in a build without kpd::llm (inspect_language.h): tensors are all that it shows.
#include "inspect_language.h"

namespace kpd::tool {

LanguageFacts language_facts(const std::string&, const io::Weights&) { return {}; }

}  // namespace kpd::tool
