// Texts in files as Windows' editors write them.
#include "kpd/text/text_file.h"

#include <gtest/gtest.h>

#include "kpd/llm/evaluate.h"
#include "kpd/llm/tasks.h"
#include "kpd/llm/task_files.h"

namespace kpd::llm {
namespace {

const std::string kMark = "\xEF\xBB\xBF";

TEST(TextFile, PromptsAreTheSameFromEveryEditor) {
  for (const std::string given : {"Hello\nworld", "Hello\nworld\n", "Hello\r\nworld\r\n", "Hello\r\nworld", "Hello\rworld\r"}) {
    EXPECT_EQ(text::prompt_of_file(given), "Hello\nworld");
    EXPECT_EQ(text::prompt_of_file(kMark + given), "Hello\nworld");
  }
  EXPECT_EQ(text::prompt_of_file("a\n\n"), "a\n");
  EXPECT_EQ(text::prompt_of_file("\r\n"), "");
  EXPECT_EQ(text::prompt_of_file(""), "");
  EXPECT_EQ(text::prompt_of_file("a" + kMark), "a" + kMark);
}

// llama-perplexity reads the bytes but for one line end at the end; Python's text mode, which the papers' scripts use, CR LF as
// LF and the mark as a character.
TEST(TextFile, TextsToPredictAreWhatTheProtocolsReferenceReads) {
  EXPECT_EQ(protocol_text(Protocol::kLlamaCpp, kMark + "a\r\nb\n\n"), kMark + "a\r\nb\n");
  EXPECT_EQ(protocol_text(Protocol::kLlamaCpp, "a\r\n"), "a\r");
  EXPECT_EQ(protocol_text(Protocol::kPaper, kMark + "a\r\nb\rc\n"), kMark + "a\nb\nc\n");
}

TEST(TextFile, TasksBeginAfterTheMark) {
  const auto items = read_task(Task::kHellaswag, kMark + "A b\r\n1\r\na\r\nb\r\nc\r\nd\r\n", {}, "f");
  ASSERT_EQ(items.size(), 1u);
  EXPECT_EQ(items[0].context, "A b");
  EXPECT_EQ(items[0].right, 1u);
  const auto piqa = read_task(Task::kPiqa, kMark + R"({"goal":"g","sol1":"a","sol2":"b"})", kMark + "1\r\n", "f");
  EXPECT_EQ(piqa[0].right, 1u);
}

}  // namespace
}  // namespace kpd::llm
