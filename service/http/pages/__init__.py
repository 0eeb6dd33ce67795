"""Pages for people: sessions, their windows over time, postmortems, a live tail. Readable without scripts."""
