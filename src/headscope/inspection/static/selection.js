/* What the reader has chosen: a head, a query token, perhaps a key token, whether they are locked, and the part that shows.
   Views subscribe to "head" (another head), "token" (another query, key or lock) or "part" (of a pair of texts). */

class Selection {
  constructor(head) {
    this.head = head;
    this.query = 0;
    this.key = null;
    this.lock = null;
    this.part = "all";
    this.listeners = { head: [], token: [], part: [] };
  }

  subscribe(kind, listener) {
    this.listeners[kind].push(listener);
  }

  tell(kind) {
    for (const listener of this.listeners[kind]) listener();
  }

  chooseHead(head) {
    if (head === this.head) return;
    this.head = head;
    this.tell("head");
    this.tell("token");
  }

  choosePart(part) {
    if (part === this.part) return;
    this.part = part;
    this.tell("part");
    this.tell("token");
  }

  set(query, key) {
    if (query === this.query && key === this.key) return;
    this.query = query;
    this.key = key;
    this.tell("token");
  }

  /* The pointer or the focus is on a cell of the map: a locked query stays, and the column gives the key. */
  pointCell(query, key) {
    this.set(this.lock ? this.lock.query : query, key);
  }

  /* The pointer or the focus is on a token: it becomes the query, or the key of a locked query. */
  pointToken(token) {
    if (this.lock) this.set(this.lock.query, token);
    else this.set(token, null);
  }

  /* The pointer is gone: the query stays, the key goes back to the locked one. */
  leave() {
    this.set(this.query, this.lock ? this.lock.key : null);
  }

  /* Lock this query and key, or unlock where they are locked already. */
  toggle(query, key) {
    const same = this.lock !== null && this.lock.query === query && this.lock.key === key;
    this.lock = same ? null : { query, key };
    this.query = query;
    this.key = key;
    this.tell("token");
  }

  release() {
    if (this.lock === null) return;
    this.lock = null;
    this.key = null;
    this.tell("token");
  }
}
