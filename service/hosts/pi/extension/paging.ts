/** Context paging of the session that Pi has open: what Pi says goes to the bridge, what it answers to Pi. */

import type { ExtensionAPI, ExtensionContext } from "@earendil-works/pi-coding-agent";

import { BridgeFailure, BridgeRefusal } from "./bridge.ts";
import { BridgedSession, type Message } from "./bridged-session.ts";
import type { Installation } from "./installation.ts";
import type { Answer, Level, Sent, ToolDefinition } from "./protocol.ts";
import { readSettings, type SettingsSources } from "./settings.ts";
import { acquireBridge, releaseBridge } from "./shared-bridge.ts";

const STATUS = "context-paging";
const OFF = "paging off";

export class Paging {
  private readonly pi: ExtensionAPI;
  private readonly installation: Installation;
  private session: BridgedSession | undefined;
  /** Why there is no session at the bridge: the bridge is gone, or it refused to start the session. */
  private missing: Error | undefined;
  private ctx: ExtensionContext | undefined;
  private unsubscribe: () => void = () => undefined;

  constructor(pi: ExtensionAPI, installation: Installation) {
    this.pi = pi;
    this.installation = installation;
  }

  /**
   * A session started, or is to be tried again.
   *
   * @throws Error its settings cannot be read; the session goes on with paging off.
   */
  async start(reason: string, ctx: ExtensionContext): Promise<void> {
    this.ctx = ctx;
    this.session = undefined;
    this.missing = undefined;
    this.unsubscribe();
    let settings: SettingsSources | undefined;
    let unreadable: Error | undefined;
    try {
      settings = readSettings(ctx);
    } catch (error) {
      unreadable = error as Error;
    }
    try {
      const bridge = await acquireBridge(this.installation, this);
      this.unsubscribe = bridge.onFailure((failure) => this.lose(failure));
      const sources = settings ?? { error: unreadable?.message ?? "" };
      const session = new BridgedSession(bridge, ctx.sessionManager, sources);
      this.tell(await session.start(reason), ctx);
      this.session = session;
      await this.follow(ctx);
    } catch (error) {
      this.lose(error);
    }
    if (unreadable) throw unreadable;
  }

  /** The session ends; with `last`, Pi may end too. */
  async shutDown(last: boolean, ctx: ExtensionContext): Promise<void> {
    const session = this.session;
    this.session = undefined;
    this.unsubscribe();
    try {
      await session?.take({ type: "shut_down" });
    } finally {
      this.ctx = undefined;
      if (ctx.hasUI) ctx.ui.setStatus(STATUS, undefined);
      await releaseBridge(this, last);
    }
  }

  /** What to send to the provider, or nothing where that is what Pi has. May abort the call. */
  async context(messages: Message[], ctx: ExtensionContext): Promise<Message[] | undefined> {
    if (this.missing instanceof BridgeRefusal) await this.start("reload", ctx);
    if (this.missing instanceof BridgeRefusal) return this.abort(ctx);
    const session = this.session;
    if (!session) return undefined;
    try {
      await this.follow(ctx);
      const answer = await session.context({
        messages,
        systemPrompt: ctx.getSystemPrompt(),
        tools: this.activeTools(),
        contextWindow: ctx.model?.contextWindow,
        usageTokens: ctx.getContextUsage()?.tokens,
      });
      this.tell(answer, ctx);
      if (!answer.send) return this.abort(ctx);
      return assembled(answer.send, messages);
    } catch (error) {
      if (!(error instanceof BridgeRefusal) || error.code === "INTERNAL_ERROR") {
        this.lose(error);
        return undefined;
      }
      this.notify("error", `Context paging aborted this provider call (${error.code}). ${error.message}`, ctx);
      return this.abort(ctx);
    }
  }

  /** A host event; the entries that are new go first. Without a bridge it leads to nothing. */
  take(event: Record<string, unknown>, ctx: ExtensionContext): Promise<Answer> {
    return this.ask(ctx, async (session) => {
      await this.follow(ctx);
      return session.take(event);
    });
  }

  /** Pi moved to another leaf. */
  async navigated(ctx: ExtensionContext): Promise<void> {
    await this.ask(ctx, (session) => session.navigated());
  }

  /** Pi is about to move to another leaf, from which the entries up to this one cannot be found. */
  async leaving(ctx: ExtensionContext): Promise<void> {
    await this.ask(ctx, async () => {
      await this.follow(ctx);
      return {};
    });
  }

  /** The command. `on` tries again where the bridge is gone. */
  async command(choice: string, ctx: ExtensionContext): Promise<void> {
    if (!this.session && choice === "on") await this.start("reload", ctx);
    if (this.session) await this.take({ type: "command", arguments: choice }, ctx);
    if (this.session || choice === "on") return;
    this.notify("warning", this.reason(), ctx);
    if (choice === "off") this.publish(OFF, ctx);
  }

  /**
   * A recovery tool.
   *
   * @throws Error the bridge is gone, or says why it cannot be answered.
   */
  async tool(name: string, parameters: unknown, ctx: ExtensionContext): Promise<string> {
    const answer = await this.take({ type: "tool", name, parameters }, ctx);
    if (answer.text === undefined) throw new Error(this.reason());
    return answer.text;
  }

  private async ask(
    ctx: ExtensionContext,
    question: (session: BridgedSession) => Promise<Answer>,
  ): Promise<Answer> {
    if (!this.session) return {};
    try {
      const answer = await question(this.session);
      this.tell(answer, ctx);
      return answer;
    } catch (error) {
      if (!(error instanceof BridgeFailure)) throw error;
      this.lose(error);
      return {};
    }
  }

  private async follow(ctx: ExtensionContext): Promise<void> {
    try {
      await this.session?.follow();
    } catch (error) {
      // What cannot be read of the stored history is missing from it, and the call is decided without.
      if (!(error instanceof BridgeRefusal)) throw error;
      this.notify("error", `Context paging cannot read a stored entry (${error.code}). ${error.message}`, ctx);
    }
  }

  private abort(ctx: ExtensionContext): undefined {
    ctx.abort();
    return undefined;
  }

  /** There is no session at the bridge any more: say so once, and let Pi go on without paging. */
  private lose(error: unknown): void {
    if (this.missing) return;
    this.missing = error as Error;
    this.session = undefined;
    this.unsubscribe();
    if (!this.ctx) return;
    this.notify("error", this.reason(), this.ctx);
    this.publish(OFF, this.ctx);
  }

  private reason(): string {
    const error = this.missing;
    if (error instanceof BridgeRefusal) {
      return `Context paging cannot start (${error.code}), and provider calls are aborted until it can. ${error.message}`;
    }
    const why = error instanceof BridgeFailure ? `the bridge is gone, ${error.message}` : (error?.message ?? "no session");
    return (
      `Context paging is off: ${why}. Pi goes on without it. ` +
      "/context-paging on tries again; `context-paging pi doctor` looks for the cause."
    );
  }

  private activeTools(): ToolDefinition[] {
    const active = new Set(this.pi.getActiveTools());
    return this.pi
      .getAllTools()
      .filter((tool) => active.has(tool.name))
      .map(({ name, description, parameters }) => ({ name, description, parameters: { ...parameters } }));
  }

  private tell(answer: Answer, ctx: ExtensionContext): void {
    for (const { level, text } of answer.notifications ?? []) this.notify(level, text, ctx);
    if (typeof answer.status === "string") this.publish(answer.status, ctx);
  }

  private notify(level: Level, text: string, ctx: ExtensionContext): void {
    if (ctx.hasUI) ctx.ui.notify(text, level);
    else process.stderr.write(`${text}\n`);
  }

  private publish(text: string, ctx: ExtensionContext): void {
    if (ctx.hasUI) ctx.ui.setStatus(STATUS, text);
  }
}

function assembled(sent: Sent<Message>[], messages: Message[]): Message[] | undefined {
  const [only] = sent;
  const whole = sent.length === 1 && only && "first" in only && only.first === 0 && only.last === messages.length - 1;
  // An unchanged list lets Pi keep its system messages where they are.
  if (whole || messages.length === 0) return undefined;
  return sent.flatMap((part) => ("message" in part ? [part.message] : messages.slice(part.first, part.last + 1)));
}
