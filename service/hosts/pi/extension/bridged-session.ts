/** One Pi session at the bridge: sends what is new, and nothing twice. */

import { isDeepStrictEqual } from "node:util";

import type { ContextEvent, ExtensionContext } from "@earendil-works/pi-coding-agent";

import { type Bridge, BridgeRefusal } from "./bridge.ts";
import type { Answer, ContextAnswer, ToolDefinition } from "./protocol.ts";
import type { SettingsSources } from "./settings.ts";

export type Message = ContextEvent["messages"][number];
type Store = ExtensionContext["sessionManager"];
type Entry = ReturnType<Store["getEntries"]>[number];

/** Characters of entries in one request, about: the bridge answers between two of them. */
const APPEND_CHARACTERS = 4_000_000;
/** Another process went on with this session's log. */
const CONFLICT = "SESSION_CONFLICT";

export interface ProviderCall {
  messages: Message[];
  systemPrompt: string;
  tools: ToolDefinition[];
  contextWindow: number | undefined;
  usageTokens: number | null | undefined;
}

export class BridgedSession {
  private readonly bridge: Bridge;
  private readonly store: Store;
  private readonly settings: SettingsSources | { error: string };
  /** Ids of the entries that the bridge has, and the leaf it knows. */
  private readonly known = new Set<string>();
  private leaf: string | null = null;
  /** The messages of the previous request, as the bridge has them. */
  private outgoing: Message[] = [];

  constructor(bridge: Bridge, store: Store, settings: SettingsSources | { error: string }) {
    this.bridge = bridge;
    this.store = store;
    this.settings = settings;
  }

  /** Start the session. Its entries go with `follow`. */
  async start(reason: string): Promise<Answer> {
    this.known.clear();
    this.leaf = null;
    this.outgoing = [];
    return this.bridge.request<Answer>({
      session: this.store.getSessionId(),
      label: this.store.getSessionName() ?? this.store.getCwd(),
      session_file: this.store.getSessionFile(),
      event: { type: "session_start", reason, ...this.settings },
    });
  }

  /** Bring the bridge up to the leaf. */
  async follow(): Promise<void> {
    await this.append();
    if (this.leaf !== this.store.getLeafId()) await this.navigate();
  }

  /** Pi moved to another leaf. */
  async navigated(): Promise<Answer> {
    await this.append();
    return this.navigate();
  }

  /** Pi is about to call the provider. */
  async context(call: ProviderCall): Promise<ContextAnswer<Message>> {
    return this.send(async () => {
      const unchanged = samePrefix(this.outgoing, call.messages);
      const answer = await this.event<ContextAnswer<Message>>({
        type: "context",
        unchanged,
        messages: call.messages.slice(unchanged),
        system_prompt: call.systemPrompt,
        tools: call.tools,
        context_window: call.contextWindow ?? null,
        usage_tokens: call.usageTokens ?? null,
      });
      this.outgoing = call.messages;
      return answer;
    });
  }

  /** Any other host event. */
  async take(event: Record<string, unknown>): Promise<Answer> {
    return this.send(() => this.event<Answer>(event));
  }

  private async send<Result>(action: () => Promise<Result>): Promise<Result> {
    try {
      return await action();
    } catch (error) {
      if (!(error instanceof BridgeRefusal) || error.code !== CONFLICT) throw error;
      await this.start("resume");
      await this.append();
      return action();
    }
  }

  private event<Result>(event: Record<string, unknown>): Promise<Result> {
    return this.bridge.request<Result>({ session: this.store.getSessionId(), event });
  }

  private async navigate(): Promise<Answer> {
    return this.send(async () => {
      const leaf = this.store.getLeafId();
      const answer = await this.event<Answer>({ type: "navigate", leaf_id: leaf });
      this.leaf = leaf;
      return answer;
    });
  }

  private async append(): Promise<void> {
    const session = JSON.stringify(this.store.getSessionId());
    const entries = this.fresh();
    let texts: string[] = [];
    let characters = 0;
    for (const [position, entry] of entries.entries()) {
      const text = JSON.stringify(entry);
      texts.push(text);
      characters += text.length;
      this.known.add(entry.id);
      this.leaf = entry.id;
      if (characters < APPEND_CHARACTERS && position < entries.length - 1) continue;
      await this.bridge.ask(`"session":${session},"event":{"type":"append","entries":[${texts.join(",")}]}`);
      texts = [];
      characters = 0;
    }
  }

  /** What the bridge lacks: at first everything stored, then what lies between the leaf and an entry it has. */
  private fresh(): Entry[] {
    if (this.known.size === 0) return this.store.getEntries();
    const fresh: Entry[] = [];
    let entry = this.store.getLeafEntry();
    while (entry && !this.known.has(entry.id)) {
      fresh.push(entry);
      entry = entry.parentId === null ? undefined : this.store.getEntry(entry.parentId);
    }
    return fresh.reverse();
  }
}

function samePrefix(previous: Message[], messages: Message[]): number {
  // Pi hands out copies, so that what is the same has to be compared.
  const limit = Math.min(previous.length, messages.length);
  let same = 0;
  while (same < limit && isDeepStrictEqual(previous[same], messages[same])) same++;
  return same;
}
