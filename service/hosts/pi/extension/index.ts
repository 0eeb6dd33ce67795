/** Context paging in Pi: events, the command and the recovery tools. Decisions are the bridge's. */

import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";

import { readInstallation } from "./installation.ts";
import { Paging } from "./paging.ts";

const CHOICES = [
  { value: "on", label: "on", description: "Page this session" },
  { value: "off", label: "off", description: "Send everything in this session" },
  { value: "status", label: "status", description: "Show whether paging is on" },
  { value: "stats", label: "stats", description: "Show what is stored, sent and cached" },
];

export default function contextPaging(pi: ExtensionAPI): void {
  const installation = readInstallation();
  const paging = new Paging(pi, installation);

  pi.on("session_start", (event, ctx) => paging.start(event.reason, ctx));
  pi.on("session_shutdown", (event, ctx) => paging.shutDown(event.reason === "quit", ctx));
  pi.on("context", async (event, ctx) => {
    const messages = await paging.context(event.messages, ctx);
    return messages && { messages };
  });
  pi.on("turn_end", async (event, ctx) => {
    await paging.take({ type: "turn_end", entry_id: event.messageEntryId }, ctx);
  });
  pi.on("session_before_tree", (_event, ctx) => paging.leaving(ctx));
  pi.on("session_tree", (_event, ctx) => paging.navigated(ctx));
  pi.on("session_before_compact", async (event, ctx) => {
    const { cancel } = await paging.take({ type: "before_compaction", reason: event.reason }, ctx);
    return cancel ? { cancel } : undefined;
  });
  pi.on("session_compact", async (event, ctx) => {
    await paging.take({ type: "compacted", entry_id: event.compactionEntry.id }, ctx);
  });
  pi.on("session_compact_failed", async (event, ctx) => {
    if (event.aborted) await paging.take({ type: "attempt_cancelled", attempt: "compaction" }, ctx);
  });
  pi.on("model_select", async ({ model }, ctx) => {
    const name = `${model.provider}/${model.id}`;
    await paging.take({ type: "select_model", model: name, context_window: model.contextWindow }, ctx);
  });

  pi.registerCommand("context-paging", {
    description: "Context paging of this session: on, off, status, stats",
    getArgumentCompletions: (prefix) => {
      const matching = CHOICES.filter((choice) => choice.value.startsWith(prefix.trim()));
      return matching.length > 0 ? matching : null;
    },
    handler: (choice, ctx) => paging.command(choice.trim(), ctx),
  });

  for (const tool of installation.tools) {
    pi.registerTool({
      ...tool,
      label: tool.name.replaceAll("_", " "),
      execute: async (_id, parameters, _signal, _onUpdate, ctx) => ({
        content: [{ type: "text", text: await paging.tool(tool.name, parameters, ctx) }],
        details: {},
      }),
    });
  }
}
