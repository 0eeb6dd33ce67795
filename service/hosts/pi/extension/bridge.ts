/** The bridge's process: requests as JSON lines on its standard input, an answer a line on its standard output. */

import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import type { Socket } from "node:net";

import type { Installation } from "./installation.ts";
import { type Hello, PROTOCOL_VERSION } from "./protocol.ts";

/** The bridge did not start, ended, or did not answer in time: it is gone. */
export class BridgeFailure extends Error {}

/** The bridge is well and says no: an error with a code and what to do. */
export class BridgeRefusal extends Error {
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.code = code;
  }
}

interface Waiting {
  resolve: (answer: unknown) => void;
  reject: (error: Error) => void;
  timer: NodeJS.Timeout;
}

/** Characters of what the bridge last printed for people that are kept, to say why it ended. */
const KEPT_ERRORS = 2_000;
const GRACE_MILLISECONDS = 5_000;

export class Bridge {
  private readonly child: ChildProcessWithoutNullStreams;
  private readonly timeout: number;
  private readonly waiting = new Map<number, Waiting>();
  private readonly listeners = new Set<(failure: BridgeFailure) => void>();
  private readonly ended: Promise<void>;
  private failure: BridgeFailure | undefined;
  private stopping = false;
  private lastId = 0;
  private received = "";
  private errors = "";

  private constructor(installation: Installation) {
    const [program = "", ...rest] = installation.command;
    this.timeout = installation.timeout;
    // In a process group of its own: an interrupt typed into Pi's terminal is not meant for the bridge.
    this.child = spawn(program, rest, { stdio: ["pipe", "pipe", "pipe"], detached: true, windowsHide: true });
    this.ended = new Promise((resolve) => {
      this.child.once("close", () => resolve());
      this.child.once("error", () => resolve());
    });
    this.child.once("error", (error) => this.fail(`it could not be started (${error.message})`));
    this.child.once("close", (code, signal) => this.fail(`it ended with ${signal ?? `exit status ${code}`}`));
    this.child.stdin.on("error", () => undefined);
    this.child.stdout.setEncoding("utf8").on("data", (text: string) => this.receive(text));
    this.child.stderr.setEncoding("utf8").on("data", (text: string) => {
      this.errors = (this.errors + text).slice(-KEPT_ERRORS);
    });
    // Pi may end while the bridge waits for the next request. The timer of a request keeps Pi waiting for its answer.
    this.child.unref();
    for (const stream of [this.child.stdin, this.child.stdout, this.child.stderr]) (stream as Socket).unref();
  }

  /**
   * Start a bridge and say hello.
   *
   * @throws BridgeFailure it does not start, does not answer, or speaks another version.
   */
  static async start(installation: Installation): Promise<Bridge> {
    const bridge = new Bridge(installation);
    try {
      const hello = await bridge.request<Hello>({ hello: { version: PROTOCOL_VERSION, host: "pi" } });
      if (hello.context_paging !== installation.version) {
        bridge.fail(
          `it is of context-paging ${hello.context_paging} and this extension of ${installation.version}; ` +
            "run `context-paging pi install`, then /reload",
        );
      }
    } catch (error) {
      if (error instanceof BridgeRefusal) bridge.fail(error.message);
    }
    if (bridge.failure) {
      bridge.child.kill("SIGKILL");
      throw bridge.failure;
    }
    return bridge;
  }

  /** Why the bridge is gone, if it is. */
  get gone(): BridgeFailure | undefined {
    return this.failure;
  }

  /** Be told once when the bridge is gone. Returns what ends that. */
  onFailure(listener: (failure: BridgeFailure) => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /**
   * Ask, and wait for the answer.
   *
   * @throws BridgeRefusal the bridge answers with an error.
   * @throws BridgeFailure the bridge is gone.
   */
  request<Result>(request: Record<string, unknown>): Promise<Result> {
    return this.ask(JSON.stringify(request).slice(1, -1));
  }

  /** The same; `fields` are the members of the request as JSON text. */
  ask<Result>(fields: string): Promise<Result> {
    if (this.failure) return Promise.reject(this.failure);
    const id = ++this.lastId;
    return new Promise<Result>((resolve, reject) => {
      const timer = setTimeout(() => {
        this.fail(`it did not answer within ${this.timeout / 1000} seconds`);
        this.child.kill("SIGKILL");
      }, this.timeout);
      this.waiting.set(id, { resolve: (answer) => resolve(answer as Result), reject, timer });
      this.child.stdin.write(`{"id":${id},${fields}}\n`);
    });
  }

  /** Let the bridge finish its log and end; after a while, end it. */
  async stop(): Promise<void> {
    this.stopping = true;
    this.child.stdin.end();
    const timer = setTimeout(() => this.child.kill("SIGKILL"), GRACE_MILLISECONDS);
    await this.ended;
    clearTimeout(timer);
  }

  private receive(text: string): void {
    let start = 0;
    let end = text.indexOf("\n");
    while (end >= 0) {
      this.answered(this.received + text.slice(start, end));
      this.received = "";
      start = end + 1;
      end = text.indexOf("\n", start);
    }
    this.received += text.slice(start);
  }

  private answered(line: string): void {
    let answer: { id?: unknown; ok?: unknown; error?: { code: string; message: string } };
    try {
      answer = JSON.parse(line);
    } catch {
      this.fail("it printed something else than answers");
      this.child.kill("SIGKILL");
      return;
    }
    // Answers come in order. A line that could not be read at all is answered without its id.
    const id = typeof answer.id === "number" ? answer.id : this.waiting.keys().next().value;
    const waiting = id === undefined ? undefined : this.waiting.get(id);
    if (id === undefined || !waiting) return;
    this.waiting.delete(id);
    clearTimeout(waiting.timer);
    if (answer.error) waiting.reject(new BridgeRefusal(answer.error.code, answer.error.message));
    else waiting.resolve(answer.ok);
  }

  private fail(why: string): void {
    if (this.failure) return;
    const printed = this.errors.trim().split("\n").at(-1);
    this.failure = new BridgeFailure(printed ? `${why}: ${printed}` : why);
    for (const waiting of this.waiting.values()) {
      clearTimeout(waiting.timer);
      waiting.reject(this.failure);
    }
    this.waiting.clear();
    if (!this.stopping) for (const listener of this.listeners) listener(this.failure);
  }
}
