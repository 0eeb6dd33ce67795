/** For tests: what a user or another extension does and RPC has no command for. */

import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";

export default function user(pi: ExtensionAPI): void {
  pi.registerCommand("navigate", {
    description: "Move to an entry, as /tree does",
    handler: async (id, ctx) => {
      await ctx.navigateTree(id.trim());
    },
  });
  pi.registerCommand("inject", {
    description: "Store a message of an extension",
    handler: async (content) => pi.sendMessage({ customType: "note", content, display: true }),
  });
}
