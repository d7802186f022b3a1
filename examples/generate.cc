// Goes on from a text, token by token, with the model of a GGUF file. Public headers only.
#include <iostream>
#include <string_view>

#include <kpd/llm/llm.h>

int main(int argc, char** argv) {
  using namespace kpd::llm;
  if (argc != 3) {
    std::cerr << "usage: generate MODEL.gguf TEXT\n";
    return 2;
  }
  try {
    Model model = Model::load(argv[1]);
    const kpd::text::Tokenizer tokenizer = kpd::text::Tokenizer::from_gguf(kpd::io::load_gguf_metadata(argv[1]));
    const auto cache = model.make_cache("f16", 4096);
    GenerateOptions options;
    options.max_tokens = 40;
    options.sampling = {.temperature = 0.8, .top_p = 0.95, .seed = 1};
    const Generated answer =
        generate(model, tokenizer, *cache, 0, tokenizer.encode(argv[2]), options, [](std::string_view text) {
          std::cout << text << std::flush;
          return true;
        });
    std::cout << "\n" << answer.tokens << " tokens, ended by " << finish_reason_name(answer.reason) << "\n";
  } catch (const kpd::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
