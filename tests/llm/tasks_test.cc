// Items of HellaSwag, PIQA and LAMBADA from their files, and how their endings are scored (tests/cli/llm_test.py compares with
// lm-eval's convention).
#include "kpd/llm/tasks.h"
#include "kpd/llm/task_files.h"

#include <gtest/gtest.h>

#include "base/expect_error.h"
#include "text/tokenizer_fixture.h"

namespace kpd::llm {
namespace {

std::string error_of(Task task, std::string_view data, std::string_view labels = {}) {
  try {
    read_task(task, data, labels, "file");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kCorruptData);
    return e.what();
  }
  return "";
}

TEST(Tasks, HellaswagLosesWhatWikihowLeftInBrackets) {
  const auto items =
      read_task(Task::kHellaswag, " A [title] B [step] c\r\n2\n one \n[x]two\nthree [open\nfour\n\nC\n0\na\nb\nc\nd", {}, "f");
  ASSERT_EQ(items.size(), 2u);
  EXPECT_EQ(items[0].context, "A. B c");  // ".  B" and "B  c" have lost a space each
  EXPECT_EQ(items[0].endings, (std::vector<std::string>{"one", "two", "three [open", "four"}));
  EXPECT_EQ(items[0].right, 2u);
  EXPECT_EQ(items[1].context, "C");
  EXPECT_EQ(read_task(Task::kHellaswag, "A\n2\n1\n2\n3\n4\nbroken", {}, "f", 1).size(), 1u);
}

TEST(Tasks, PiqaTakesItsLabelFromTheItemOrTheList) {
  const std::string_view line = R"({"goal": "g", "sol1": "a ", "sol2": "b"})";
  const auto items = read_task(Task::kPiqa, line, "1\n", "f");
  EXPECT_EQ(items[0].context, "Question: g\nAnswer:");
  EXPECT_EQ(items[0].endings, (std::vector<std::string>{"a ", "b"}));
  EXPECT_EQ(items[0].right, 1u);
  EXPECT_EQ(read_task(Task::kPiqa, R"({"goal": "g", "sol1": "a", "sol2": "b", "label": 1})", {}, "f")[0].right, 1u);
}

TEST(Tasks, LambadaEndsWithTheLastWord) {
  const auto items = read_task(Task::kLambada, R"({"text": "One two\nthree four"})", {}, "f");
  EXPECT_EQ(items[0].context, "One two\nthree");
  EXPECT_EQ(items[0].endings, (std::vector<std::string>{"four"}));
}

// The original context is 32 tokens: the whole line decides how its first chunk is rotated.
TEST(Tasks, ChunksDoNotChangeRotationsThatDependOnTheContext) {
  const text::Tokenizer tokenizer = testing::character_tokenizer();
  const TaskItem item{"The quick brown fox jumps over the lazy dog and", {"sleeps.", "runs on."}, 0};
  Model model = Model::load(std::string(KPD_TESTS_DIR) + "/golden/models/phi3",
                            {.arithmetic = Arithmetic::kExact, .n_threads = 1, .limits = {}});
  const auto scores = [&](size_t chunk) {
    const TaskOptions options{.chunk = chunk};
    return run_task(model, tokenizer, Task::kHellaswag, std::span(&item, 1), options, nullptr).items[0].log_likelihoods;
  };
  EXPECT_EQ(scores(512), scores(5));
}

TEST(Tasks, ItemsThatCannotBeScoredAreRefusedBeforeAnyWork) {
  const text::Tokenizer tokenizer = testing::character_tokenizer();
  Model model = Model::load(std::string(KPD_TESTS_DIR) + "/golden/models/llama",
                            {.arithmetic = Arithmetic::kExact, .n_threads = 1, .limits = {}});
  size_t worked = 0;
  model.set_tap([&](size_t, LinearSite, const float*, size_t, size_t) { ++worked; });
  const TaskItem good{"a b", {"c", "d"}, 1};
  const auto run = [&](const TaskItem& last) {
    const TaskItem items[] = {good, last};
    return run_task(model, tokenizer, Task::kPiqa, items, {}, {});
  };
  EXPECT_KPD_ERROR(kInvalidArgument, "item 1 has no ending", run({"a b", {}, 0}));
  EXPECT_KPD_ERROR(kInvalidArgument, "item 1: the right ending is number 7 of 2", run({"a b", {"c", "d"}, 7}));
  EXPECT_KPD_ERROR(kInvalidArgument, "item 1: the right ending is number 2 of 2", run({"a b", {"c", "d"}, 2}));
  EXPECT_EQ(worked, 0u);
  EXPECT_EQ(run(good).items.size(), 2u);
}

TEST(Tasks, WrongFilesNameTheLine) {
  EXPECT_NE(error_of(Task::kHellaswag, "A\n5\n1\n2\n3\n4\n").find("file: line 2"), std::string::npos);
  EXPECT_NE(error_of(Task::kHellaswag, "A\n1\n1\n2\n\n4\n").find("the ending is empty"), std::string::npos);
  EXPECT_NE(error_of(Task::kPiqa, "\n{\"goal\": 1}").find("line 2"), std::string::npos);
  EXPECT_NE(error_of(Task::kPiqa, R"({"goal": "g", "sol1": "a", "sol2": "b"})", "2").find("0 to 1"), std::string::npos);
  EXPECT_NE(error_of(Task::kLambada, std::string(1 << 16, '[')).find("JSON object"), std::string::npos);
  EXPECT_NE(error_of(Task::kLambada, "\n \n").find("no item of lambada"), std::string::npos);
  EXPECT_KPD_ERROR(kInvalidArgument, "the task 'piq' is unknown", parse_task("piq"));
}

}  // namespace
}  // namespace kpd::llm
