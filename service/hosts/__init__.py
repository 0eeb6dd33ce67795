"""Agent programs that context paging is built into, one package a host."""
