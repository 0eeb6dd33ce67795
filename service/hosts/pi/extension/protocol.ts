/** What the bridge says: the answers to host events, as JSON values. */

/** How much a message for the user matters. */
export type Level = "info" | "warning" | "error";

export interface Notification {
  level: Level;
  text: string;
}

/** What every event but a context request leads to. Some parts are there for some events only. */
export interface Answer {
  notifications?: Notification[];
  /** The text for the footer, where it is to be set. */
  status?: string | null;
  /** Whether a compaction must not happen. */
  cancel?: boolean;
  /** What the model is given by a recovery tool. */
  text?: string;
}

/** A run of Pi's own messages by their first and last position, or a message that is not Pi's. */
export type Sent<Message> = { first: number; last: number } | { message: Message };

export interface ContextAnswer<Message> extends Answer {
  outcome: string;
  /** What goes out, in order; an aborted call has none. */
  send?: Sent<Message>[];
}

/** The definition of a recovery tool: its parameters are a JSON Schema. */
export interface ToolDefinition {
  name: string;
  description: string;
  parameters: Record<string, unknown>;
}

export interface Hello {
  version: number;
  context_paging: string;
  tools: ToolDefinition[];
}

export const PROTOCOL_VERSION = 1;
