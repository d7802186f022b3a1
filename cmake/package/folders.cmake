# Run by cpack on what it is about to pack: everybody may enter the folders, whatever the umask of who packs. (Files have their permissions
# from the rules that install them.)
file(CHMOD_RECURSE ${CPACK_TEMPORARY_DIRECTORY}
     DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
