"""What is asked of all nodes' cards: names, lacks, scrape targets, the planner's view."""
