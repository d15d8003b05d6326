"""What goes out: events to pipelines that listen, dead letters back in, notices to people."""
