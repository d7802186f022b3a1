// No tests: the precompiled header that the tests share needs a program to belong to (CMakeLists.txt). GoogleTest brings
// main().
