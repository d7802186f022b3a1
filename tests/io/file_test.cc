#include "kpd/io/file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/expect_error.h"
#include "io/temp_folder.h"

namespace kpd::io {
namespace {

using testing::to_bytes;
using Names = std::vector<std::string>;

class MapFile : public testing::TempFolder {};
class AtomicFileTest : public testing::TempFolder {};

TEST_F(MapFile, GivesTheContent) {
  const auto bytes = to_bytes("hello");
  MappedFile file = map_file(put("a", bytes));
  EXPECT_EQ(std::vector<uint8_t>(file.bytes().begin(), file.bytes().end()), bytes);
  EXPECT_EQ(file.name(), path("a"));
  const uint8_t* data = file.bytes().data();
  MappedFile moved = std::move(file);
  EXPECT_EQ(moved.bytes().data(), data);
  EXPECT_TRUE(file.bytes().empty());  // NOLINT: moved-from is empty by contract
  moved = map_file(put("b", to_bytes("xy")));
  EXPECT_EQ(moved.bytes().size(), 2u);
}

TEST_F(MapFile, AnEmptyFileIsEmpty) { EXPECT_TRUE(map_file(put("a", {})).bytes().empty()); }

TEST_F(MapFile, RefusesWhatIsNoFile) {
  EXPECT_KPD_ERROR(kIo, path("absent") + ": cannot open", map_file(path("absent")));
  EXPECT_KPD_ERROR(kIo, "is a directory", map_file(folder_));
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_KPD_ERROR(kIo, "is a pipe", map_file(path("pipe")));
  EXPECT_KPD_ERROR(kIo, "is a device", map_file("/dev/null"));
  EXPECT_KPD_ERROR(kIo, "a?b", map_file(path("a\nb")));
}

TEST_F(AtomicFileTest, AppearsOnCommitOnly) {
  AtomicFile file(path("out"));
  file.write(to_bytes("abc"));
  file.write({});
  file.write(to_bytes("def"));
  EXPECT_EQ(file.size_bytes(), 6u);
  EXPECT_FALSE(std::filesystem::exists(path("out")));
  file.commit();
  EXPECT_EQ(get("out"), to_bytes("abcdef"));
  EXPECT_EQ(names(), (Names{"out"}));
  EXPECT_KPD_ERROR(kInvalidArgument, "written after", file.write(to_bytes("x")));
  EXPECT_KPD_ERROR(kInvalidArgument, "committed after", file.commit());
}

TEST_F(AtomicFileTest, WithoutCommitNothingIsLeftAndTheOldFileStays) {
  put("out", to_bytes("old"));
  {
    AtomicFile file(path("out"));
    file.write(to_bytes("new content"));
  }
  EXPECT_EQ(get("out"), to_bytes("old"));
  EXPECT_EQ(names(), (Names{"out"}));
}

TEST_F(AtomicFileTest, ReplacesAndKeepsTheMode) {
  put("out", to_bytes("old, and longer than the new one"));
  ASSERT_EQ(chmod(path("out").c_str(), 0640), 0);
  write_file(path("out"), to_bytes("new"));
  EXPECT_EQ(get("out"), to_bytes("new"));
  struct stat info;
  ASSERT_EQ(stat(path("out").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0640u);
}

TEST_F(AtomicFileTest, FollowsLinks) {
  std::filesystem::create_directory(path("sub"));
  put("sub/real", to_bytes("old"));
  std::filesystem::create_symlink("sub/real", path("link"));
  std::filesystem::create_symlink("link", path("link2"));
  std::filesystem::create_symlink("sub/fresh", path("dangling"));
  write_file(path("link2"), to_bytes("new"));
  write_file(path("dangling"), to_bytes("made"));
  EXPECT_EQ(get("sub/real"), to_bytes("new"));
  EXPECT_EQ(get("sub/fresh"), to_bytes("made"));
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
  EXPECT_EQ(names(), (Names{"dangling", "link", "link2", "sub"}));
}

TEST_F(AtomicFileTest, RefusesFoldersAndMissingFolders) {
  EXPECT_KPD_ERROR(kIo, "is a directory", AtomicFile{folder_});
  EXPECT_KPD_ERROR(kIo, "no/out: cannot create", AtomicFile{path("no/out")});
}

TEST_F(AtomicFileTest, AFullDiskIsSaidSo) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full";
  EXPECT_KPD_ERROR(kIo, "/dev/full: cannot write at byte 0: no space left on device", write_file("/dev/full", to_bytes("abc")));
  struct stat info;
  ASSERT_EQ(stat("/dev/full", &info), 0);
  EXPECT_TRUE(S_ISCHR(info.st_mode)) << "a device is written, never replaced";
}

TEST_F(AtomicFileTest, AWriteThatFailsHalfwayLeavesNothing) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      AtomicFile file(path("out"));
      file.write(std::vector<uint8_t>(600));
      file.write(std::vector<uint8_t>(600));
      _exit(1);
    } catch (const Error& e) {
      const bool ok =
          e.code() == ErrorCode::kIo && std::string(e.what()).find("cannot write at byte 1000") != std::string::npos;
      _exit(ok && names().empty() ? 0 : 2);  // removed at once, not only by the destructor
    }
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(names().empty());
}

}  // namespace
}  // namespace kpd::io
