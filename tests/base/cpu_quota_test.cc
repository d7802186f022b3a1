// tests: the processors that control groups leave a process, of both versions, from files of /proc and /sys as containers have
// them.
#include "base/cpu_quota.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <unistd.h>

namespace kpd {
namespace {

namespace fs = std::filesystem;

// A tree of files as the kernel would show them.
class FakeRoot : public testing::Test {
 protected:
  FakeRoot() : root_(fs::temp_directory_path() / ("kpd-cpu-quota-" + std::to_string(getpid()))) {
    fs::create_directories(root_);
  }
  ~FakeRoot() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    const fs::path file = root_ / path.substr(1);
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::optional<double> quota() const { return cpu_quota(root_.string()); }

  void unified(const std::string& group, const std::string& shown = "/") {
    write("/proc/self/cgroup", "0::" + group + "\n");
    write("/proc/self/mountinfo",
          "23 1 0:21 / /proc rw - proc proc rw\n31 23 0:28 " + shown + " /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n");
  }
  void first_version(const std::string& group, const std::string& shown = "/") {
    write("/proc/self/cgroup", "5:memory:/other\n4:cpu,cpuacct:" + group + "\n1:name=systemd:/\n0::/\n");
    write("/proc/self/mountinfo", "33 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n32 31 0:29 " + shown +
                                      " /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n");
  }

  fs::path root_;
};

TEST_F(FakeRoot, NoFilesNoQuota) { EXPECT_EQ(quota(), std::nullopt); }

TEST_F(FakeRoot, VersionTwoOfTheGroupItself) {
  unified("/a/b");
  write("/sys/fs/cgroup/a/b/cpu.max", "150000 100000\n");
  EXPECT_EQ(quota(), 1.5);
  write("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), std::nullopt);
}

TEST_F(FakeRoot, TheLeastOfTheGroupsAround) {
  unified("/a/b");
  write("/sys/fs/cgroup/a/b/cpu.max", "400000 100000\n");
  write("/sys/fs/cgroup/a/cpu.max", "200000 100000\n");
  EXPECT_EQ(quota(), 2);
  write("/sys/fs/cgroup/a/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), 4);
}

TEST_F(FakeRoot, AContainersOwnGroupIsTheRootOfItsMount) {
  unified("/");
  write("/sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(quota(), 0.5);
}

TEST_F(FakeRoot, APathThatLeadsOutOfTheMountIsItsRoot) {
  unified("/../other");
  write("/sys/fs/cgroup/cpu.max", "300000 100000\n");
  write("/sys/fs/other/cpu.max", "100000 100000\n");
  EXPECT_EQ(quota(), 3);
}

TEST_F(FakeRoot, VersionOne) {
  first_version("/jobs");
  write("/sys/fs/cgroup/cpu,cpuacct/jobs/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu,cpuacct/jobs/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), std::nullopt);
  write("/sys/fs/cgroup/cpu,cpuacct/jobs/cpu.cfs_quota_us", "250000\n");
  EXPECT_EQ(quota(), 2.5);
}

TEST_F(FakeRoot, VersionOneInAContainerThatSeesTheHostsNames) {
  first_version("/docker/0123", "/docker/0123");
  write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "100000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "50000\n");
  EXPECT_EQ(quota(), 2);
}

TEST_F(FakeRoot, FilesThatSayNothing) {
  for (const char* text : {"", "\n", "max", "1", "x y\n", "0 100000\n", "-5 100000\n", "100000 0\n"}) {
    unified("/a");
    write("/sys/fs/cgroup/a/cpu.max", text);
    EXPECT_EQ(quota(), std::nullopt) << text;
  }
  for (const char* text : {"", "0::", "::\n", "0:\n", "0::a/b\n", "4:cpu\n"}) {
    write("/proc/self/cgroup", text);
    EXPECT_EQ(quota(), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace kpd
