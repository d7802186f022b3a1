# zsh -f complete.zsh FOLDER LINE: prints what a zsh at a terminal makes of LINE and a tab, with the completions in FOLDER.
emulate -R zsh
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1=; fpath=(${(q)1} \$fpath); autoload -Uz compinit; compinit -D -u; show() { print -r -- \"<\$BUFFER>\"; exit }; zle -N show; bindkey '^X' show; print rea''dy"
zpty -r shell seen '*ready*'
zpty -w -n shell "$2"$'\t\C-X'
zpty -r shell seen '*<*>*'
print -r -- ${${seen##*<}%%>*}
