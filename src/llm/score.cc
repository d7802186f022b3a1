// llm: many texts through the model, with few tokens twice. Which texts share a step is decided by counts of tokens alone.
#include "kpd/llm/score.h"

#include <algorithm>
#include <numeric>

#include "kpd/base/error.h"
#include "llm/text_scorer.h"

namespace kpd::llm {
namespace {

// Tokens that a group may read again so that one text more belongs to it: less than a step of its own costs.
constexpr size_t kReadAgain = 16;

void check_texts(std::span<const ScoredText> texts, const ModelDescription& description) {
  for (size_t i = 0; i < texts.size(); ++i) {
    const size_t n = texts[i].tokens.size(), n_context = texts[i].n_context;
    if (n_context == 0 || n_context >= n) {
      fail(ErrorCode::kInvalidArgument, "text ", i, ": a context of ", n_context, " of its ", n,
           " tokens; expected at least one, and one that is scored");
    }
    if (n > description.max_context + 1) {
      fail(ErrorCode::kInvalidArgument, "text ", i, " has ", n, " tokens, the model's context is ", description.max_context);
    }
    for (const text::TokenId token : texts[i].tokens) {
      if (token < 0 || static_cast<size_t>(token) >= description.n_vocabulary)
        fail(ErrorCode::kInvalidArgument, "text ", i, ": token ", token, " is not one of the model's ",
             description.n_vocabulary);
    }
  }
}

std::vector<TextGroup> make_groups(std::span<const ScoredText> texts, std::span<const size_t> order, size_t chunk, bool alone) {
  std::vector<TextGroup> groups;
  size_t shared = 0, rest = 0;
  for (const size_t i : order) {
    const ScoredText& text = texts[i];
    if (!groups.empty() && !alone) {
      TextGroup& group = groups.back();
      const size_t now = std::min(shared, shared_tokens({group[0], &text})), more = text.tokens.size() - now;
      // Neither the group nor the text gives up a beginning that others share with it.
      if ((shared - now) * group.size() <= kReadAgain && text.n_context - 1 - now <= kReadAgain && rest + more <= chunk) {
        rest += more + (shared - now) * group.size();
        group.push_back(&text);
        shared = now;
        continue;
      }
    }
    groups.push_back({&text});
    shared = text.n_context - 1;
    rest = text.tokens.size() - shared;
  }
  return groups;
}

}  // namespace

std::vector<TextScore> score_texts(Model& model, std::span<const ScoredText> texts, const ScoreOptions& options,
                                   const std::function<bool(size_t)>& progress) {
  check_texts(texts, model.description());
  std::vector<size_t> order(texts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // Texts that begin alike stand together.
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return texts[a].tokens < texts[b].tokens; });
  const std::vector<TextGroup> groups = make_groups(texts, order, options.chunk, depends_on_context(model.description()));

  // Groups of about a step's tokens go together.
  std::vector<size_t> ends;
  size_t capacity = 0, longest = 0, room = 0, tokens = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    const size_t shared = shared_tokens(groups[g]);
    room += room_for(groups[g], shared);
    longest = std::max(longest, shared);
    tokens += shared;
    for (const ScoredText* text : groups[g]) tokens += text->tokens.size() - shared;
    capacity = std::max(capacity, room);
    if (tokens < options.chunk && g + 1 < groups.size()) continue;
    ends.push_back(g + 1);
    room = tokens = 0;
  }
  TextScorer scorer(model, options, capacity + longest);
  std::vector<TextScore> scores(texts.size());
  size_t done = 0, begin = 0;
  for (const size_t end : ends) {
    for (const TextScore& score : scorer.score(std::span(groups).subspan(begin, end - begin))) scores[order[done++]] = score;
    begin = end;
    if (progress && !progress(done)) fail(ErrorCode::kCancelled, "cancelled after ", done, " of ", texts.size(), " texts");
  }
  return scores;
}

}  // namespace kpd::llm
