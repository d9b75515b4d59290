/** Lines of a node's log that a page keeps, the latest: a screen has fifty. */
export const LOG_LIMIT = 2000;
