// tests: mapped files, inputs that are pipes, files written in pieces, locks, and outputs that appear when they are whole.
#include "kpd/io/file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "base/expect_error.h"
#include "io/temp_folder.h"
#include "kpd/io/scratch.h"

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

TEST_F(MapFile, TellsWhoseMemoryAnAddressIs) {
  const MappedFile file = map_file(put("a", to_bytes("hello")));
  EXPECT_EQ(mapped_file_at(file.bytes().data() + 4), path("a"));
  EXPECT_EQ(mapped_file_at(&file), nullptr);
  const uint8_t* data = file.bytes().data();
  {
    const MappedFile other = map_file(path("a"));
    EXPECT_EQ(mapped_file_at(other.bytes().data()), path("a"));
    data = other.bytes().data();
  }
  EXPECT_EQ(mapped_file_at(data), nullptr) << "unmapped";
}

TEST_F(MapFile, InputsMayBePipes) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  for (const size_t size : {size_t{0}, size_t{5}, size_t{4096}, size_t{70} << 20}) {
    std::vector<uint8_t> bytes(size);
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(i * 7 >> 3);
    std::thread writer([&] {
      std::ofstream(path("pipe"), std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), static_cast<long>(size));
    });
    const MappedFile file = map_input(path("pipe"), folder_);
    writer.join();
    ASSERT_EQ(file.bytes().size(), size);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), file.bytes().begin()));
    EXPECT_EQ(names(), (Names{"pipe"})) << "a copy on disk has no name";
  }
  EXPECT_EQ(map_input(put("a", to_bytes("hello")), folder_).bytes().size(), 5u);
  EXPECT_EQ(map_input("/dev/null", folder_).bytes().size(), 0u);
  EXPECT_KPD_ERROR(kIo, "cannot open", map_input(path("absent"), folder_));
}

TEST_F(AtomicFileTest, IsPutTogetherOutOfOrder) {
  AtomicFile file(path("out"));
  file.write(to_bytes("abcdef"));
  file.write_at(1, to_bytes("XY"));
  EXPECT_KPD_ERROR(kInvalidArgument, "overwritten where", file.write_at(5, to_bytes("XY")));
  file.commit();
  EXPECT_EQ(get("out"), to_bytes("aXYdef"));
  AtomicFile mapped(path("out"));
  const auto bytes = mapped.map(100);
  ASSERT_EQ(bytes.size(), 100u);
  bytes[99] = 'z';
  bytes[0] = 'a';
  EXPECT_EQ(mapped_file_at(bytes.data()), path("out"));
  mapped.shorten(2);
  mapped.commit();
  EXPECT_EQ(get("out"), (std::vector<uint8_t>{'a', 0}));
  EXPECT_EQ(names(), (Names{"out"}));
  EXPECT_KPD_ERROR(kInvalidArgument, "mapped after", AtomicFile("/dev/null").map(5));
}

TEST_F(AtomicFileTest, UnfinishedFilesCanBeRemovedAtOnce) {
  AtomicFile file(path("out"));
  ASSERT_EQ(names().size(), 1u);
  remove_unfinished_files();
  EXPECT_TRUE(names().empty());
}

TEST_F(AtomicFileTest, ALockIsHeldOnce) {
  {
    const FileLock lock(path("out"));
    EXPECT_KPD_ERROR(kIo, "another run is writing it", FileLock{path("out")});
    EXPECT_EQ(names(), (Names{"out.lock"}));
  }
  EXPECT_TRUE(names().empty());
  put("out.lock", {});  // of a process that was killed
  const FileLock again(path("out"));
}

class Scratch : public testing::TempFolder {};

TEST_F(Scratch, IsZeroAndHasNoName) {
  for (const size_t size : {size_t{0}, size_t{100}, (size_t{64} << 20) + 8}) {
    ScratchMemory memory(size, folder_);
    ASSERT_EQ(memory.bytes().size(), size);
    EXPECT_TRUE(names().empty());
    if (size == 0) continue;
    EXPECT_EQ(memory.bytes()[size - 1], 0);
    memory.bytes()[size - 1] = 1;
    ScratchMemory moved = std::move(memory);
    EXPECT_EQ(moved.bytes()[size - 1], 1);
    EXPECT_EQ(moved.as<double>().size(), size / 8);
  }
  EXPECT_KPD_ERROR(kIo, "absent: cannot make a temporary file", ScratchMemory(size_t{65} << 20, path("absent")));
}

TEST_F(Scratch, OutputsGoToFilesAndPipes) {
  MappedOutput file(path("out"), 10, folder_);
  std::fill(file.bytes().begin(), file.bytes().end(), 'x');
  EXPECT_FALSE(std::filesystem::exists(path("out")));
  file.commit(3);
  EXPECT_EQ(get("out"), to_bytes("xxx"));
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  std::vector<uint8_t> got;
  std::thread reader([&] { got = get("pipe"); });
  MappedOutput pipe(path("pipe"), 10, folder_);
  std::fill(pipe.bytes().begin(), pipe.bytes().end(), 'y');
  pipe.commit(4);
  reader.join();
  EXPECT_EQ(got, to_bytes("yyyy"));
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

TEST_F(AtomicFileTest, KeepsAFileThatCameMeanwhileWhereAsked) {
  AtomicFile first(path("out"), Existing::kKeep), second(path("out"), Existing::kKeep), third(path("out"));
  for (AtomicFile* file : {&first, &second, &third}) file->write(to_bytes(file == &first ? "first" : "other"));
  first.commit();
  EXPECT_KPD_ERROR(kIo, "out: another has made it meanwhile", second.commit());
  EXPECT_EQ(get("out"), to_bytes("first"));
  third.commit();
  EXPECT_EQ(get("out"), to_bytes("other"));
  EXPECT_EQ(names(), Names{"out"});
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
